"""Dropout with a random byte an element is dropout."""

import pytest
import torch

from glassformer.layers.dropout import Dropout


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_dropout_share_and_preserved_mean(p: float, dtype: torch.dtype) -> None:
    """``p`` is rounded to 1/256; the share of 400,004 elements then lies within 4.5 standard deviations of it.

    The kernels know no float64: there PyTorch draws the bytes, as everywhere without a compiler.
    """
    dropped, x = round(p * 256) / 256, torch.ones(400_004, dtype=dtype)
    y = Dropout(p)(x)
    share = (y == 0).double().mean().item()
    assert share == pytest.approx(dropped, abs=4.5 * (dropped * (1 - dropped) / x.numel()) ** 0.5)
    kept = y[y != 0].unique()
    assert kept.tolist() == pytest.approx([1 / (1 - dropped)], rel=4e-3 if dtype == torch.bfloat16 else 1e-6)


def test_neighbors_are_dropped_independently() -> None:
    """Within the bytes of one random number, from one to the next, and from one draw to the next."""
    dropout = Dropout(0.5)
    y, other = ((dropout(torch.ones(200_000)) == 0).double() for _ in range(2))
    assert (y * other).mean().item() == pytest.approx(0.25, abs=4.5 * 0.5 / 200_000**0.5)
    for lag in (1, 2, 4, 8, 16, 32, 48, 64, 256, 4096):
        together = (y[lag:] * y[:-lag]).mean().item()
        assert together == pytest.approx(0.25, abs=4.5 * 0.5 / 200_000**0.5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (8, 2, 4), (7, 333)])
def test_the_gradient_passes_where_the_value_passed(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    y = Dropout(0.5)(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(y.detach(), x.detach() * gradient, atol=0, rtol=1e-15)
    assert y.shape == x.shape


def test_a_seed_fixes_the_mask_and_the_next_mask_differs() -> None:
    dropout, x, masks = Dropout(0.4), torch.ones(1000), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        masks.append((dropout(x), dropout(x)))
    assert torch.equal(torch.stack(masks[0]), torch.stack(masks[1]))
    assert not torch.equal(masks[0][0], masks[0][1])
    assert not torch.equal(masks[0][0], masks[2][0])


def test_dropout_is_the_identity_in_evaluation_and_at_rate_zero() -> None:
    x = torch.randn(5)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_a_share_of_the_rate_is_dropped() -> None:
    dropout = Dropout(0.5).train()
    x, seen = torch.ones(40_000), {}
    for share in (0.0, 0.5, 1.0):
        dropout.set_share(share)
        seen[share] = (dropout(x) == 0).float().mean().item()
    assert seen[0.0] == 0
    assert seen[0.5] == pytest.approx(0.25, abs=0.02)
    assert seen[1.0] == pytest.approx(0.5, abs=0.02)
