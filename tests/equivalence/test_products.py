"""Single operations of the kernels equal PyTorch's, forward and backward, with any number of cores."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.errors import ConfigError
from glassformer.native import ops
from glassformer.native.library import kernels
from glassformer.native.ops import NativeDropout, NativeLinear, product
from glassformer.taps import record


@pytest.fixture(autouse=True)
def _compiled() -> None:
    if kernels() is None:
        pytest.skip("there are no kernels here")


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("transposed", ["", "a", "b", "ab"])
@pytest.mark.parametrize(
    ("rows", "depth", "columns"), [(192, 192, 64), (770, 7, 5), (801, 1100, 77), (1000, 33, 300), (300, 1030, 1100)]
)
def test_a_product_is_pytorchs(rows: int, depth: int, columns: int, transposed: str, bias: bool) -> None:
    a = torch.randn(depth, rows).t() if "a" in transposed else torch.randn(rows, depth)
    b = torch.randn(columns, depth).t() if "b" in transposed else torch.randn(depth, columns)
    added = torch.randn(columns) if bias else None
    expected = a.double() @ b.double() + (0 if added is None else added)
    found = product(a, b, added)
    assert found.is_contiguous()
    torch.testing.assert_close(found, expected.float(), atol=2e-6 * depth, rtol=1e-5)


@pytest.mark.parametrize("depth", [64, 300, 2101])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_product_is_as_exact_as_pytorchs(depth: int, transposed: bool) -> None:
    """Errors relative to the sum of the magnitudes; numbers of one sign, and of very different sizes.

    Entries are summed in order, also those of parts. MKL sums short pieces on some processors, which rounds less.
    """
    torch.manual_seed(1)
    for kind in ("normal", "positive", "wide"):
        a, b = torch.randn(800, depth), torch.randn(depth, 200)
        if kind == "positive":
            a, b = a.abs(), b.abs()
        elif kind == "wide":
            a, b = (x * torch.exp(4 * torch.randn_like(x)) for x in (a, b))
        if transposed:
            a, b = a.t().contiguous().t(), b.t().contiguous().t()
        exact, scale = a.double() @ b.double(), a.double().abs() @ b.double().abs()
        found, expected = (((y.double() - exact) / scale).square().mean().sqrt() for y in (product(a, b), a @ b))
        assert found < 4 * expected


@pytest.mark.parametrize(("rows", "depth", "columns"), [(192, 1030, 768), (200, 2101, 1000), (64, 300, 200)])
def test_strides_of_the_operands_change_no_bit(
    rows: int, depth: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the transposed product is computed, as for some gradients of weights."""
    monkeypatch.setattr(ops, "MIN_ROWS", 1)  # PyTorch would compute small products
    a, b = torch.randn(rows, depth), torch.randn(depth, columns)
    expected = product(a, b)
    assert torch.equal(product(a.t().contiguous().t(), b), expected)
    assert torch.equal(product(a, b.t().contiguous().t()), expected)


def test_powers_of_two_only_move_the_exponent() -> None:
    a, b = torch.randn(800, 100), torch.randn(100, 70)
    expected = product(a, b)
    for power in (2.0**60, 2.0**-60):
        assert torch.equal(product(a * power, b), expected * power)
        assert torch.equal(product(a * power, b / power), expected)


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_a_row_that_is_not_finite_changes_no_other(value: float) -> None:
    a, b = torch.randn(800, 100), torch.randn(100, 70)
    expected = product(a, b)
    a[37, 5] = value
    found = product(a, b)
    assert not found[37].isfinite().any()
    found[37] = expected[37]
    assert torch.equal(found, expected)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    module = NativeLinear(weight.size(1), weight.size(0), bias is not None, device="meta")
    module._parameters["weight"], module._parameters["bias"] = weight, bias
    return module(x)


def dropped(x: Tensor, seed: int, threshold: int) -> Tensor:
    """``x`` after dropout; the same ``seed`` draws the same mask."""
    torch.manual_seed(seed)
    return NativeDropout(threshold / 256)(x)


@pytest.mark.parametrize("bias", [False, True])
def test_a_linear_layer_and_its_gradients_are_pytorchs(bias: bool) -> None:
    x, weight = torch.randn(5, 60, 48, requires_grad=True), torch.randn(72, 48, requires_grad=True)
    leaves = [x, weight, *([torch.randn(72, requires_grad=True)] if bias else [])]
    weights = torch.randn(5, 60, 72)
    found, expected = ((f(*leaves) * weights).sum() for f in (linear, F.linear))
    assert "Linear" in type(linear(*leaves).grad_fn).__name__  # not PyTorch's own
    torch.testing.assert_close(found, expected)
    for one, other in zip(torch.autograd.grad(found, leaves), torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize(("rows", "columns"), [(200, 128), (200, 77), (1000, 128), (1000, 600), (200, 333)])
def test_distances_of_steps_in_memory_change_no_bit(rows: int, columns: int) -> None:
    """Each thread packs few columns for itself. Products with more columns than rows are computed transposed."""
    a, b = torch.randn(1100, rows), torch.randn(1100, columns)
    far_a, far_b = torch.zeros(1100, 2000), torch.zeros(1100, 2000)
    far_a[:, :rows], far_b[:, :columns] = a, b
    expected = product(a.t(), b)
    torch.testing.assert_close(expected, (a.double().t() @ b.double()).float(), atol=2e-3, rtol=1e-5)
    for one, other in ((far_a, b), (a, far_b), (far_a, far_b)):
        assert torch.equal(product(one[:, :rows].t(), other[:, :columns]), expected)
    assert torch.equal(product(a.t().contiguous(), b), expected)


def test_the_number_of_cores_changes_no_bit() -> None:
    x, before = torch.randn(3, 1001), torch.get_num_threads()
    sizes = [(1000, 96, 200), (200, 2100, 128), (300, 2100, 64), (500, 700, 900)]
    operands = [(torch.randn(rows, depth), torch.randn(depth, columns)) for rows, depth, columns in sizes]
    operands += [(a.t().contiguous().t(), b) for a, b in operands]
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append((*(product(a, b) for a, b in operands), dropped(x, 7, 100)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for found in results[1:] for one, other in zip(found, results[0], strict=True))


def test_the_same_elements_go_in_either_precision() -> None:
    x = torch.ones(10_007)
    one, other = (dropped(x.to(dtype), 123456789123, 77) for dtype in (torch.float32, torch.bfloat16))
    assert torch.equal(one == 0, other == 0)


def test_nan_is_preserved() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        assert dropped(torch.full((100,), torch.nan, dtype=dtype), 1, 10).isnan().sum() > 80


def test_few_rows_a_trace_and_no_gradient_leave_a_linear_layer_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, apply = [], ops._Linear.apply
    monkeypatch.setattr(ops._Linear, "apply", lambda *tensors: calls.append(len(tensors)) or apply(*tensors))
    module = NativeLinear(8, 8)
    many, few = torch.randn(ops.MIN_ROWS, 8), torch.randn(ops.MIN_ROWS - 1, 8)
    module(many)
    assert calls == [3]
    module(few)
    with torch.no_grad():
        module(many)
    with pytest.raises(ConfigError, match="recorded nothing"), record(module):
        module(many)
    assert calls == [3]


def test_gradients_of_gradients_are_pytorchs() -> None:
    x, weight = torch.randn(300, 20, requires_grad=True), torch.randn(30, 20, requires_grad=True)
    results = []
    for function in (linear, F.linear):
        (first,) = torch.autograd.grad(function(x, weight).tanh().square().sum(), x, create_graph=True)
        results.append(torch.autograd.grad(first.square().sum(), (x, weight)))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-4)
    y = torch.randn(5, 70, requires_grad=True)
    dropout = NativeDropout(0.3)
    (first,) = torch.autograd.grad(dropout(y.square()).sum(), y, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), y)
    torch.testing.assert_close(second, first.detach() / y.detach())


def test_a_product_in_float64_is_pytorchs() -> None:
    a, b = torch.randn(800, 12, dtype=torch.float64), torch.randn(12, 5, dtype=torch.float64)
    torch.testing.assert_close(product(a, b), a @ b)
