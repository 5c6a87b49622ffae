"""x Wᵀ + b: the definition, and for training in float32 on a CPU the same by products of our own."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.native.ops import MIN_ROWS, kernels_for, product
from glassformer.taps import tracing


class Linear(nn.Linear):
    """``nn.Linear`` by ``linear``."""

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        return linear(x, self.weight, self.bias)


def linear(
    x: Float[Tensor, "*batch inputs"],
    weight: Float[Tensor, "outputs inputs"],
    bias: Float[Tensor, " outputs"] | None = None,
) -> Float[Tensor, "*batch outputs"]:
    """``F.linear``."""
    if tracing() or x.numel() < MIN_ROWS * x.size(-1) or kernels_for(x, weight) is None:
        return F.linear(x, weight, bias)
    return _Linear.apply(x, weight, bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        rows = x.reshape(-1, x.size(-1))
        return product(rows, weight.t(), bias).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        multiply = torch.matmul if torch.is_grad_enabled() else product  # who differentiates again needs PyTorch's
        d_rows = d_y.reshape(-1, d_y.size(-1))
        d_x = multiply(d_rows, weight).view(x.shape) if needs_x else None
        d_weight = multiply(d_rows.t(), x.reshape(-1, x.size(-1))) if needs_weight else None
        return d_x, d_weight, d_rows.sum(0) if needs_bias else None
