"""Activations of the feed-forward layers (section 3.3): each is described here, and nowhere else in the package.

A kernel of another activation than these is in ``csrc/activation.h``; without one, PyTorch computes it.
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch.nn.functional as F
from torch import Tensor

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
