"""Layers of Llama (Touvron et al. 2023, arXiv:2302.13971) in place of the paper's.

RMSNorm (Zhang & Sennrich 2019, arXiv:1910.07467) and the gated feed-forward layer (Shazeer 2020, arXiv:2002.05202). Its
rotary positions are in ``layers.rotary``.
"""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from glassformer.taps import note, tap


class RMSNorm(nn.RMSNorm):
    """x / √(mean(x²) + ε) · γ: nothing is centered, and there is no β."""

    def __init__(self, d_model: int, eps: float = 1e-6):
        super().__init__(d_model, eps)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        note(self, "root_mean_square", lambda: (x.square().mean(-1) + (self.eps or 0.0)).sqrt())
        return super().forward(x)


class GatedFeedForward(nn.Module):
    """(activation(x W_gate) ⊙ x W_1) W_2: with SiLU it is SwiGLU, with GELU GEGLU (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, d_model: int, d_ff: int, activation: Callable[[Tensor], Tensor], bias: bool = True):
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff, bias=bias)
        self.inner = nn.Linear(d_model, d_ff, bias=bias)
        self.outer = nn.Linear(d_ff, d_model, bias=bias)
        self.activation = activation

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        activated = tap(self, "activated", self.activation(tap(self, "gate", self.gate(x))))
        product = tap(self, "product", activated * tap(self, "inner", self.inner(x)))
        return tap(self, "result", self.outer(product))
