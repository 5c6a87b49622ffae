"""Numbers as text: a rounded zero has no minus, and every other minus is typographic."""

from collections.abc import Callable

import pytest

from glassformer.text.decimals import aligned, compact, decimal, precise, weight


@pytest.mark.parametrize("write", [decimal, compact, precise, weight, lambda value: aligned(value, 3)])
def test_zero_has_no_minus(write: Callable[[float], str]) -> None:
    assert write(-0.0).strip("0.") == ""
    assert write(-1.5).startswith("−1.5")


def test_number_that_is_rounded_to_zero_has_no_minus() -> None:
    assert [aligned(value, 3) for value in (-0.0004, -0.0006, 0.0004)] == ["0.000", "−0.001", "0.000"]
    assert compact(-0.004) == "0.00"
    assert decimal(-1e-5) == "−1e−05"
