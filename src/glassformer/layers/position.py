"""Section 3.5: since the model has neither recurrence nor convolution, it is told the order of the tokens.

Sinusoidal (the paper's), learned (its alternative, Table 3 row E), and rotary (Su et al. 2021, arXiv:2104.09864).
"""

from collections.abc import Callable
from typing import Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.config import DataError
from glassformer.native.ops import rotated

Offset = int | Int[Tensor, " rows"]
"""The position of the first of some tokens; of each row its own, where rows of different length grow together."""


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
    """Fixed positions of any length; the first ``max_length`` are computed once."""

    table: Tensor

    def __init__(self, max_length: int, d_model: int):
        super().__init__()
        self.d_model = d_model
        table = sinusoids(torch.arange(max_length).double(), d_model)
        self.register_buffer("table", table.to(torch.get_default_dtype()), persistent=False)

    @property
    def at_hand(self) -> int:
        """How many positions need not be computed."""
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
        known = end_of(offset, length) <= self.at_hand
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
    def at_hand(self) -> int:
        """How many positions there are."""
        return self.weight.size(0)

    def forward(self, offset: Offset, length: int) -> Float[Tensor, "*rows length d_model"]:
        limit, end = self.at_hand, end_of(offset, length)
        if end > limit:
            raise DataError(
                f"{end} tokens are longer than max_length={limit}, and learned positions end there; "
                "shorten the text, or train with positions=sinusoidal"
            )
        if isinstance(offset, int):
            return self.weight[offset:end]
        return F.embedding(positions_from(offset, length, offset.device), self.weight)

    def within(self, offset: Int[Tensor, " rows"], length: int) -> Int[Tensor, " rows"]:
        """``offset``; rows that have no place for ``length`` more keep to the last ones while another row has some.

        A search keeps rows that have ended for a while, and its limits see to it that no other comes so far.
        """
        last = self.at_hand - length
        return offset.clamp(max=last) if bool((offset <= last).any()) else offset


class Rotary(nn.Module):
    """Turns each pair of query and key dimensions by an angle proportional to the position.

    The product q·k then depends on the distance alone. Nothing is added to the embedding. Angles are computed in
    float64 whatever the type of the model: eight bits cannot tell neighbouring positions apart. The slowest pair turns
    once in about 2π · ``theta`` positions.
    """

    def __init__(self, d_head: int, theta: float = 10000.0):
        super().__init__()
        self.d_head = d_head
        self.theta = theta

    def forward(
        self, x: Float[Tensor, "rows heads length d_head"], offset: Offset
    ) -> Float[Tensor, "rows heads length d_head"]:
        angles = self.angles(x.size(-2), x.device, offset)
        if angles.dim() == 3:  # of each row its own; the same for its heads
            angles = angles[:, None]
        if x.requires_grad and angles.dim() == 2 and (y := rotated(x, angles)) is not None:
            return y
        if not torch.compiler.is_compiling():
            return _turned(x, angles)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)  # graphs that are exported know no other numbers
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)

    def angles(self, length: int, device: torch.device, offset: Offset = 0) -> Float[Tensor, "*rows length pairs"]:
        """By which each pair of ``length`` positions from ``offset`` on is turned, in float64."""
        positions = positions_from(offset, length, device)
        rates = self.theta ** (-torch.arange(0, self.d_head, 2, dtype=torch.float64, device=device) / self.d_head)
        return positions.double()[..., None] * rates


def _turned(
    x: Float[Tensor, "rows heads length d_head"], angles: Float[Tensor, "*rows length pairs"]
) -> Float[Tensor, "rows heads length d_head"]:
    """Each pair as one complex number times e^(i · angle): forward and backward in a third of the time that products of
    every other element take."""
    real = torch.promote_types(x.dtype, torch.float32)
    turns = torch.polar(torch.ones_like(angles), angles).to(real.to_complex())
    pairs = torch.view_as_complex(x.to(real).unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)
