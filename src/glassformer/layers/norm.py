"""Normalizations, which section 3.1 wraps around every sub-layer.

LayerNorm (Ba, Kiros & Hinton 2016, arXiv:1607.06450), and Llama's RMSNorm (Zhang & Sennrich 2019, arXiv:1910.07467).
"""

from jaxtyping import Float
from torch import Tensor, nn

from glassformer.taps import note


class LayerNorm(nn.LayerNorm):
    """(x − μ) / √(σ² + ε) · γ + β, with mean μ and variance σ² of each position over d_model."""

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        note(self, "mean", lambda: x.mean(-1))
        note(self, "deviation", lambda: (x.var(-1, correction=0) + self.eps).sqrt())
        return super().forward(x)


class RMSNorm(nn.RMSNorm):
    """x / √(mean(x²) + ε) · γ, without centering and β."""

    def __init__(self, d_model: int, eps: float = 1e-6):
        super().__init__(d_model, eps)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        note(self, "root_mean_square", lambda: (x.square().mean(-1) + (self.eps or 0.0)).sqrt())
        return super().forward(x)
