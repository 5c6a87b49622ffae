"""Low precision: forward and backward run on a copy of the layers (``models.precision``), the weights stay as they are.

Micikevicius et al. 2018 (arXiv:1710.03740), section 3.1, with bfloat16, whose exponent needs no loss scaling. The
embeddings and the output projection are not copied: their gradients are sums over many tokens, which 8 bits lose.
"""

import torch
from torch import Tensor, nn


@torch.no_grad()
def refresh(working: nn.Module, model: nn.Module) -> None:
    """The weights of ``working`` become those of ``model``, rounded."""
    low, high = _copied(working, model)
    if low:
        torch._foreach_copy_(low, high)


@torch.no_grad()
def collect_gradients(working: nn.Module, model: nn.Module) -> None:
    """Add the gradients of ``working`` to those of ``model``, and forget them."""
    low, high = _copied(working, model)
    for one, other in zip(low, high, strict=True):
        if one.grad is None:
            continue
        if other.grad is None:
            other.grad = one.grad.to(other.dtype)
        else:
            other.grad += one.grad
        one.grad = None


def _copied(working: nn.Module, model: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """The parameters of both that are not shared, in one order."""
    pairs = [
        (one, other) for one, other in zip(working.parameters(), model.parameters(), strict=True) if one is not other
    ]
    return [one for one, _ in pairs], [other for _, other in pairs]
