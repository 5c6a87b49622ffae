"""Section 5.4: residual dropout, and dropout on embeddings and attention weights (Srivastava et al. 2014)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Dropout(nn.Module):
    """Zero each element with probability ``p`` while training, and scale the others so that the mean stays.

    ``p`` is rounded to 1/256, so that a byte decides an element. PyTorch draws a float for each, which takes an eighth
    of a training step on a CPU.
    """

    def __init__(self, p: float):
        super().__init__()
        self.p = p
        self.threshold = round(p * 256)

    def set_share(self, share: float) -> None:
        """Drop ``share`` · ``p`` from now on, as when dropout rises in the course of training."""
        threshold = round(share * self.p * 256)
        if threshold != self.threshold:  # an assignment to an attribute of a module takes 4 µs
            self.threshold = threshold

    @property
    def rate(self) -> float:
        """Probability with which an element is zeroed now; 0 unless training."""
        return self.active_threshold / 256

    @property
    def active_threshold(self) -> int:
        """``threshold`` while training, else 0: a byte below it zeroes its element."""
        return self.threshold if self.training else 0

    def forward(self, x: Tensor) -> Tensor:
        if self.rate == 0.0:
            return x
        if not x.is_cpu or torch.compiler.is_compiling():
            return F.dropout(x, self.rate)
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
        keep = words.view(torch.uint8)[: x.numel()].view(x.shape) >= self.threshold
        return x * keep.to(x.dtype).mul_(1 / (1 - self.rate))

    def extra_repr(self) -> str:
        return f"p={self.p}"


def has_active_dropout(model: nn.Module) -> bool:
    """True if a module of ``model`` drops elements now, so that no two passes are the same."""
    return any(isinstance(module, Dropout) and module.rate > 0 for module in model.modules())


def attention_rate(dropout: float, attention_dropout: float | None) -> float:
    """Dropout of the attention weights: ``attention_dropout``, or ``dropout`` if it is not set."""
    return dropout if attention_dropout is None else attention_dropout
