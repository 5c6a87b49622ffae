"""Section 3.3, equation 2: FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, the same at every position.

Activations other than ReLU, and the gate of Llama (Touvron et al. 2023, arXiv:2302.13971), are of later papers. Each
activation is described here, and nowhere else in the package. A kernel of another activation than these is in
``csrc/activation.h``; without one, PyTorch computes it.
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.taps import tap

Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]


class ActivationRecord(NamedTuple):
    """One activation, in four notations."""

    function: Callable[[Tensor], Tensor]
    definition: Callable[[float], float]
    """The function of one number, by its definition."""
    latex: str
    """The definition, as a function of x."""
    text: str
    """Name with ``{}`` for the argument."""


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU by its approximation with tanh (Hendrycks & Gimpel 2016, arXiv:1606.08415), which GPT-2 has."""
    return F.gelu(x, approximate="tanh")


ACTIVATION_RECORDS: dict[Activation, ActivationRecord] = {
    "relu": ActivationRecord(F.relu, lambda x: max(0.0, x), r"\max(0, x)", "max(0, {})"),
    "gelu": ActivationRecord(F.gelu, lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))), r"x \Phi(x)", "GELU({})"),
    "gelu_tanh": ActivationRecord(
        gelu_tanh,
        lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        r"\frac{x}{2} \left(1 + \tanh\left(\sqrt{2/\pi} (x + 0.044715 x^3)\right)\right)",
        "GELU({})",
    ),
    "silu": ActivationRecord(
        F.silu, lambda x: x / (1 + math.exp(-x)) if x > -700 else 0.0, r"x / (1 + e^{-x})", "SiLU({})"
    ),
}
ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    name: record.function for name, record in ACTIVATION_RECORDS.items()
}


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
