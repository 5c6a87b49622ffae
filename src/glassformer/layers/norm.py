"""Layer normalization (Ba, Kiros & Hinton 2016, arXiv:1607.06450), as section 3.1 wraps it around every sub-layer."""

from jaxtyping import Float
from torch import Tensor, nn

from glassformer.taps import note


class LayerNorm(nn.LayerNorm):
    """(x − μ) / √(σ² + ε) · γ + β, with mean μ and variance σ² of each position over d_model."""

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        note(self, "mean", lambda: x.mean(-1))
        note(self, "deviation", lambda: (x.var(-1, correction=0) + self.eps).sqrt())
        return super().forward(x)
