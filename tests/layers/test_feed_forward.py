"""Section 3.3, and gates, by their formulas."""

import pytest
import torch
from torch import Tensor

from glassformer.layers.feed_forward import ACTIVATIONS, FeedForward, GatedFeedForward
from glassformer.taps import record

FORMULAS = {
    "relu": lambda x: x.clamp(min=0),
    "gelu": lambda x: x * (1 + torch.erf(x / 2**0.5)) / 2,
    "gelu_tanh": lambda x: x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + torch.exp(-x)),
}


def x() -> Tensor:
    return torch.randn(3, 5, 4, dtype=torch.float64)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gated_and_not(name: str, bias: bool) -> None:
    activation, formula, given = ACTIVATIONS[name], FORMULAS[name], x()
    plain = FeedForward(4, 6, activation, bias).double()
    expected = plain.outer(formula(plain.inner(given)))
    torch.testing.assert_close(plain(given), expected, atol=1e-12, rtol=1e-12)
    gated = GatedFeedForward(4, 6, activation, bias).double()
    with record(gated) as recorded:
        found = gated(given)
    product = formula(gated.gate(given)) * gated.inner(given)
    torch.testing.assert_close(recorded["activated"], formula(recorded["gate"]), atol=1e-12, rtol=1e-12)
    assert torch.equal(recorded["inner"], gated.inner(given))
    assert torch.equal(recorded["gate"], gated.gate(given))
    torch.testing.assert_close(found, gated.outer(product), atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(recorded["product"], product, atol=1e-12, rtol=1e-12)
    assert list(recorded) == ["gate", "activated", "inner", "product", "result"]
    assert bias == any(name.endswith("bias") for name, _ in gated.named_parameters())
