"""Which rows of queries have to be compared with which rows of keys, so that little is computed that nobody sees.

Positions count from the first key, rows of queries from the first query; the last query is at the last key.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Runs:
    """``count`` runs of ``length`` rows: the first begins at ``start``, each next one ``step`` later; within a run rows
    lie ``stride`` apart. Runs may overlap."""

    start: int
    length: int
    count: int = 1
    step: int = 0
    stride: int = 1

    def index(self, device: torch.device) -> Int[Tensor, "count length"]:
        first = self.start + self.step * torch.arange(self.count, device=device)
        return first[:, None] + self.stride * torch.arange(self.length, device=device)

    def take(self, x: Float[Tensor, "batch heads rows d"]) -> Float[Tensor, "run heads length d"]:
        """Views, not copies; ``batch`` · ``count`` of them, of which one must be 1."""
        across, heads, down, along = x.stride()
        shape = (x.size(0) * self.count, x.size(1), self.length, x.size(3))
        between = across if self.count == 1 else self.step * down
        return x[:, :, self.start :].as_strided(shape, (between, heads, self.stride * down, along))

    def put(self, x: Float[Tensor, "batch heads rows d"], part: Float[Tensor, "run heads length d"]) -> None:
        self.take(x).copy_(part)

    def add(self, x: Float[Tensor, "batch heads rows d"], part: Float[Tensor, "run heads length d"]) -> None:
        """Where runs overlap, in pieces that do not: several cores would else add to the same number at once."""
        size = self.step if self.count > 1 and self.stride == 1 else self.length
        for begin in range(0, self.length, size):
            piece = Runs(
                self.start + begin * self.stride, min(size, self.length - begin), self.count, self.step, self.stride
            )
            piece.take(x).add_(part[:, :, begin : begin + size])


@dataclass(frozen=True)
class Listed:
    """Rows in no order."""

    rows: tuple[int, ...]
    count: int = 1

    def index(self, device: torch.device) -> Int[Tensor, "1 length"]:
        return torch.tensor([self.rows], dtype=torch.long, device=device)

    def take(self, x: Float[Tensor, "batch heads rows d"]) -> Float[Tensor, "batch heads length d"]:
        return x.index_select(2, self.index(x.device)[0])

    def put(self, x: Float[Tensor, "batch heads rows d"], part: Float[Tensor, "batch heads length d"]) -> None:
        x.index_copy_(2, self.index(x.device)[0], part)

    def add(self, x: Float[Tensor, "batch heads rows d"], part: Float[Tensor, "batch heads length d"]) -> None:
        x.index_add_(2, self.index(x.device)[0], part)


Cover = Iterator[tuple[Runs | Listed, Runs | Listed]]
"""Rows of queries, each at most once, with the rows of keys that they are compared with."""

SMALL, LARGE = 64, 512
"""Queries compared with the same keys at once: near them, and anywhere. (In windows of 256, 64 take 0.9 of the time of
128 and 0.75 of that of 256; in windows of 128, 32 gain nothing.)"""


def windows(query: int, key: int, width: int, causal: bool) -> Cover:
    """Each position and what is less than ``width`` before it, or after it."""
    offset, ahead = key - query, 0 if causal else width
    size = min(SMALL, max(width, 16))
    first = max(offset, width)  # whose window is whole
    count = max(0, (key - ahead - first) // size)
    if count:
        yield Runs(first - offset, size, count, size), Runs(first - width, width + size + ahead, count, size)
    edges = [(offset, first), (first + count * size, key)] if count else [(offset, key)]
    for begin, end in (piece for edge in edges for piece in _pieces(*edge, SMALL)):
        low, high = max(0, begin - width), min(key, end + ahead)
        if low < high:
            yield Runs(begin - offset, end - begin), Runs(low, high - low)


def blocks(query: int, key: int, size: int, causal: bool) -> Cover:
    """Each block of ``size`` positions and itself; those that an end cuts, one by one."""
    offset = key - query
    first, last = -(-max(offset, 0) // size) * size, key // size * size
    count = max(0, (last - first) // size)
    for begin, end in _pieces(0, size, SMALL) if count else ():
        queries = Runs(first - offset + begin, end - begin, count, size)
        yield queries, Runs(first, end if causal else size, count, size)
    for block in range(max(offset, 0) // size * size, key, size):
        if not first <= block < last:
            low, high = max(offset, block), min(key, block + size)
            yield Runs(low - offset, high - low), Runs(block, high - block)


def columns(query: int, key: int, stride: int) -> Cover:
    """Positions of the same remainder by ``stride`` are a sequence; all that are equally long are computed at once."""

    def shape(remainder: int) -> tuple[int, int, int]:
        first = (remainder - (key - query)) % stride
        return first - remainder, len(range(first, query, stride)), len(range(remainder, key, stride))

    for (shift, queries, keys), alike in groupby(range(stride), shape):
        remainders = list(alike)
        first, count = remainders[0], len(remainders)
        if queries and keys:
            yield Runs(first + shift, queries, count, 1, stride), Runs(first, keys, count, 1, stride)


def to_few(positions: list[int], query: int, key: int, causal: bool) -> Cover:
    """All queries and the keys at ``positions``, which ascend."""
    for begin, end in _pieces(key - query, key, LARGE):
        keys = tuple(j for j in positions if j < (end if causal else key))
        if keys:
            yield Runs(begin - (key - query), end - begin), Listed(keys)


def from_few(positions: list[int], query: int, key: int) -> Cover:
    """The queries at ``positions`` and all keys."""
    rows = tuple(i - (key - query) for i in positions if key - query <= i < key)
    for begin, end in _pieces(0, len(rows), LARGE):
        yield Listed(rows[begin:end]), Runs(0, key)


def _pieces(begin: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    return ((low, min(low + size, end)) for low in range(begin, end, size))
