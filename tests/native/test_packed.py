"""Packed weights and tables that calls of the kernels read."""

import gc
import weakref

import pytest

from glassformer.layers.rotary import Rotary
from glassformer.native.library import missing_reason
from glassformer.native.packed import RotaryCache


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
