"""Section 5.4: residual dropout, and dropout on embeddings and attention weights (Srivastava et al. 2014)."""

from typing import Any

import torch
from torch import Tensor, nn

from glassformer.native.ops import dropped, random_seed


class Dropout(nn.Module):
    """Zeroes each element with probability ``p`` while training and scales the rest so that the mean stays.

    On a CPU PyTorch draws one random number an element, which takes an eighth of a training step. Here an element has a
    byte: ``p`` is rounded to the nearest 1/256 and the scale follows the rounded one. Compiled kernels make the bytes
    from one random number and the place of the element, forwards and again backwards, so that no mask is kept.
    """

    def __init__(self, p: float):
        super().__init__()
        self.p = p
        self.share(1.0)

    def share(self, share: float) -> None:
        """From now on drop this share of ``p``, as when dropout rises in the course of training."""
        self.threshold = round(share * self.p * 256)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.threshold == 0:
            return x
        if x.device.type != "cpu":
            return nn.functional.dropout(x, self.threshold / 256)
        return _Masked.apply(x, self.threshold, random_seed())

    def extra_repr(self) -> str:
        return f"p={self.p}"


class _Masked(torch.autograd.Function):
    """x times a mask that ``seed`` decides: made by the kernels, forwards and again backwards, or drawn and kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, threshold: int, seed: int) -> Tensor:
        ctx.threshold, ctx.seed = threshold, seed
        if (y := dropped(x, seed, threshold)) is not None:
            return y
        generator = torch.Generator().manual_seed(seed)
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None, generator=generator)
        keep = words.view(torch.uint8)[: x.numel()].view(x.shape) >= threshold
        mask = keep.to(x.dtype).mul_(256 / (256 - threshold))
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.saved_tensors:
            return gradient * ctx.saved_tensors[0], None, None
        return _Masked.apply(gradient, ctx.threshold, ctx.seed), None, None


def drops(model: nn.Module) -> bool:
    """Whether anything in ``model`` drops elements as it is now, so that no two passes are the same."""
    return any(isinstance(module, Dropout) and module.training and module.threshold > 0 for module in model.modules())
