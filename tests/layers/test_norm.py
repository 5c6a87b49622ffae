"""Normalizations by their formulas."""

import pytest
import torch

from glassformer.layers.norm import LayerNorm, RMSNorm
from glassformer.taps import record


def test_rms_norm_is_its_formula_and_notes_the_root_mean_square() -> None:
    norm, x = RMSNorm(6, eps=0.01).double(), torch.randn(2, 3, 6, dtype=torch.float64)
    torch.nn.init.normal_(norm.weight)
    with record(norm) as recorded:
        y = norm(x)
    root = (x.pow(2).sum(-1) / 6 + 0.01).sqrt()
    torch.testing.assert_close(y, x / root[..., None] * norm.weight, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(recorded["root_mean_square"], root, atol=1e-12, rtol=1e-12)
    assert [name for name, _ in norm.named_parameters()] == ["weight"]


def test_rms_norm_of_centered_input_equals_layer_norm() -> None:
    x = torch.randn(4, 8, dtype=torch.float64)
    x -= x.mean(-1, keepdim=True)
    torch.testing.assert_close(RMSNorm(8, 1e-5).double()(x), LayerNorm(8, 1e-5).double()(x), atol=1e-12, rtol=1e-12)
    assert not torch.allclose(RMSNorm(8).double()(x + 1), LayerNorm(8).double()(x + 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rms_norm_of_zeros_has_finite_gradients(dtype: torch.dtype) -> None:
    norm, x = RMSNorm(4).to(dtype), torch.zeros(2, 4, dtype=dtype, requires_grad=True)
    norm(x).sum().backward()
    assert norm(x).dtype == dtype
    assert x.grad is not None
    assert x.grad.isfinite().all()
