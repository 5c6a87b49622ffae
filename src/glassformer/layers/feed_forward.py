"""Section 3.3, equation 2: FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, the same at every position."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from glassformer.taps import tap


class FeedForward(nn.Module):
    """Two linear transformations with an activation in between.

    Differs from the paper: the activation may be another than ReLU, and the biases may be left out.
    """

    def __init__(self, d_model: int, d_ff: int, activation: Callable[[Tensor], Tensor], bias: bool = True):
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff, bias=bias)
        self.outer = nn.Linear(d_ff, d_model, bias=bias)
        self.activation = activation

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        inner = tap(self, "inner", self.inner(x))
        activated = tap(self, "activated", self.activation(inner))
        return tap(self, "result", self.outer(activated))
