"""Section 3.5: known values, at any length."""

import math

import pytest
import torch

from glassformer.errors import DataError
from glassformer.layers.position import Learned, Sinusoidal, sinusoids


@pytest.mark.parametrize("d_model", [6, 7])
@pytest.mark.parametrize("offset", [0, 3, 5, 90])
def test_sinusoids_are_those_of_the_paper_at_any_length(offset: int, d_model: int) -> None:
    """Before, across and behind the end of the table of 8; to 1e-6, as the table is float32."""
    encoding = Sinusoidal(8, d_model)(offset, 4)
    for row, position in zip(encoding.tolist(), range(offset, offset + 4), strict=True):
        angles = [position / 10000 ** (2 * (column // 2) / d_model) for column in range(d_model)]
        expected = [math.cos(angle) if column % 2 else math.sin(angle) for column, angle in enumerate(angles)]
        assert row == pytest.approx(expected, abs=1e-6)


def test_learned_positions_end_where_they_were_learned() -> None:
    position = Learned(8, 4)
    assert torch.equal(position(5, 3), position.weight[5:8])
    with pytest.raises(DataError, match=r"^9 tokens are longer than max_length=8, and learned positions end there; "):
        position(5, 4)


def test_positions_are_exact_in_any_model_dtype() -> None:
    """A table rounded once stays so: converted models compute theirs anew."""
    exact = Sinusoidal(300, 8).double()(0, 300)
    torch.testing.assert_close(exact, sinusoids(torch.arange(300).double(), 8), rtol=0, atol=1e-15)
    torch.testing.assert_close(Sinusoidal(300, 8).bfloat16().double()(0, 300), exact, rtol=0, atol=0)
