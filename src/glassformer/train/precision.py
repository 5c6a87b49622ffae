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
    copied: tuple[list[Tensor], list[Tensor]] = [], []
    added: tuple[list[Tensor], list[Tensor]] = [], []
    for one, other in zip(*_copied(working, model), strict=True):
        if one.grad is None:
            continue
        into, gradients = copied if other.grad is None else added
        other.grad = torch.empty_like(other) if other.grad is None else other.grad
        into.append(other.grad)
        gradients.append(one.grad)
        one.grad = None
    if copied[0]:  # all at once: a GPU is asked for hundreds of them in the time of one
        torch._foreach_copy_(*copied)
    if added[0]:
        torch._foreach_add_(*added)


def _copied(working: nn.Module, model: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """The parameters of both that are not shared, in one order."""
    pairs = [
        (one, other) for one, other in zip(working.parameters(), model.parameters(), strict=True) if one is not other
    ]
    return [one for one, _ in pairs], [other for _, other in pairs]
