"""Packed weights and tables that calls of the kernels read."""

import gc
import weakref

import pytest
import torch
from torch import nn

from glassformer.layers.position import Rotary
from glassformer.native.library import loaded, missing_reason
from glassformer.native.packed import Packed, RotaryCache


def weights(precision: str) -> Packed:
    """Skips where this processor does not multiply the parts of float32."""
    if reason := missing_reason():
        pytest.skip(reason)
    packed = Packed(loaded(), int8=precision == "int8", parts=precision == "parts")
    if precision == "parts" and not packed.parts:
        pytest.skip("these kernels multiply float32 itself")
    return packed


@pytest.mark.parametrize("precision", ["float32", "parts", "int8"])
@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [(8, 0), (1, 1), (3, 5), (64, 64), (130, 65), (513, 257), (512, 1000), (1030, 16), (600, 8), (1024, 72)],
)
def test_a_packed_product_is_that_of_the_linear_layer(inputs: int, outputs: int, precision: str) -> None:
    """Rows around those that are computed at once; a row has the same bits in each number of rows."""
    packed = weights(precision)
    linear = nn.Linear(inputs, outputs, bias=outputs % 2 == 1) if outputs else nn.Linear(inputs, 1)
    if not outputs:
        linear.weight, linear.bias = nn.Parameter(torch.empty(0, inputs)), nn.Parameter(torch.empty(0))
    x = torch.randn(300, inputs)
    layer, expected = packed.linear(linear), linear(x).detach()
    packed.apply(layer, x[:63])  # before larger ones enlarge the buffers
    whole = packed.apply(layer, x)
    tolerance = {"atol": 0.06, "rtol": 0.02} if packed.int8 else {"atol": 1e-5, "rtol": 1e-4}
    torch.testing.assert_close(whole, expected, **tolerance)
    for rows in (0, 1, 5, 7, 8, 15, 16, 17, 33, 39, 41, 79, 95, 96, 97, 193, 288, 289):
        assert torch.equal(packed.apply(layer, x[:rows]), whole[:rows])


@pytest.mark.parametrize("precision", ["float32", "parts", "int8"])
@pytest.mark.parametrize(("inputs", "outputs"), [(128, 64), (600, 192), (40, 100)])
def test_cores_that_divide_rows_change_no_bit(inputs: int, outputs: int, precision: str) -> None:
    """Outputs fill too few panels for all cores, so these divide 2,100 rows."""
    packed = weights(precision)
    linear, x, before = nn.Linear(inputs, outputs), torch.randn(2100, inputs), torch.get_num_threads()
    layer, results = packed.linear(linear), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(packed.apply(layer, x))
    finally:
        torch.set_num_threads(before)
    for one in results:
        assert torch.equal(one, results[0])
    assert torch.equal(packed.apply(layer, x[:90]), results[0][:90])
    if not packed.int8:
        torch.testing.assert_close(results[0], linear(x).detach(), atol=1e-5, rtol=1e-4)


def test_rotary_tables_live_as_long_as_a_call_that_reads_them() -> None:
    """Another search in another thread may need more positions, and so replace them."""
    if reason := missing_reason():
        pytest.skip(reason)
    cache = RotaryCache(Rotary(8))
    running = cache.of(4)
    tensors = [weakref.ref(tensor) for tensor in running.tensors]
    assert cache.of(4) is running
    assert cache.of(1000) is not running
    gc.collect()
    assert all(tensor() is not None for tensor in tensors)
    del running
    gc.collect()
    assert all(tensor() is None for tensor in tensors)
