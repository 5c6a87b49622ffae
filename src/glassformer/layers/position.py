"""Section 3.5: positional encodings, since the model has neither recurrence nor convolution.

Sinusoidal (the paper's) and learned (its alternative, Table 3 row E); rotary ones are in ``layers.rotary``.
"""

from collections.abc import Callable
from typing import Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.errors import DataError

Offset = int | Int[Tensor, " rows"]
"""Position of the first token; one for each row if rows of different length grow together."""


def positions_from(offset: Offset, length: int, device: torch.device | None = None) -> Int[Tensor, "*rows length"]:
    """``offset`` … ``offset + length - 1``."""
    if isinstance(offset, int):
        return torch.arange(offset, offset + length, device=device)
    return offset[:, None] + torch.arange(length, device=device)


def end_of(offset: Offset, length: int) -> int:
    """The position behind the last token of the longest row."""
    return length + (offset if isinstance(offset, int) else int(offset.max()) if len(offset) else 0)


def sinusoids(positions: Float[Tensor, "*length"], d_model: int) -> Float[Tensor, "*length d_model"]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos of the same: interleaved, as in the paper."""
    rates = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64, device=positions.device) / d_model)
    angles = positions.double()[..., None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :d_model]


class Sinusoidal(nn.Module):
    """Fixed encodings of any length; the first ``max_length`` are computed in advance."""

    table: Tensor

    def __init__(self, max_length: int, d_model: int):
        super().__init__()
        self.d_model = d_model
        table = sinusoids(torch.arange(max_length).double(), d_model)
        self.register_buffer("table", table.to(torch.get_default_dtype()), persistent=False)

    @property
    def n_positions(self) -> int:
        """Number of positions that are computed in advance."""
        return self.table.size(0)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """In another type the table is computed anew: float32's rounding must not stay in a float64 model."""
        super()._apply(fn, recurse)
        if not self.table.is_meta:
            positions = torch.arange(self.table.size(0), device=self.table.device).double()
            self.table = sinusoids(positions, self.d_model).to(self.table.dtype)
        return self

    def forward(self, offset: Offset, length: int) -> Float[Tensor, "*rows length d_model"]:
        """The encodings of positions ``offset`` … ``offset + length - 1``."""
        known = end_of(offset, length) <= self.n_positions
        if known and isinstance(offset, int):
            return self.table[offset : offset + length]
        positions = positions_from(offset, length, self.table.device)
        if known:
            return self.table[positions]
        return sinusoids(positions.double(), self.d_model).to(self.table.dtype)


class Learned(nn.Module):
    """One trained vector per position; there is none beyond ``max_length``."""

    def __init__(self, max_length: int, d_model: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_length, d_model))

    @property
    def n_positions(self) -> int:
        """Number of positions."""
        return self.weight.size(0)

    def forward(self, offset: Offset, length: int) -> Float[Tensor, "*rows length d_model"]:
        limit, end = self.n_positions, end_of(offset, length)
        if end > limit:
            raise DataError(
                f"{end} tokens are longer than max_length={limit}, and learned positions end there; "
                "shorten the text, or train with positions=sinusoidal"
            )
        if isinstance(offset, int):
            return self.weight[offset:end]
        return F.embedding(positions_from(offset, length, offset.device), self.weight)
