"""Block schedules: the rows of queries and the rows of keys that a pattern compares.

Positions count from the first key, rows of queries from the first query. The last query stands at the last key.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class StridedRows:
    """Blocks of evenly spaced rows.

    The first of ``count`` blocks begins at ``start``, each next one ``step`` rows later. A block has ``length`` rows,
    ``stride`` apart. Blocks may overlap.
    """

    start: int
    length: int
    count: int = 1
    step: int = 0
    stride: int = 1

    def indices(self, device: torch.device) -> Int[Tensor, "count length"]:
        first = self.start + self.step * torch.arange(self.count, device=device)
        return first[:, None] + self.stride * torch.arange(self.length, device=device)

    def in_phase(self, periods: tuple[int, ...]) -> bool:
        """True if a block and the next are a multiple of every period apart; a period of 0 has no multiple."""
        return self.count == 1 or all(period and self.step % period == 0 for period in periods)

    def gather(self, x: Float[Tensor, "batch heads rows d"]) -> Float[Tensor, "block heads length d"]:
        """``batch`` · ``count`` views of ``x``, not copies. One of the two factors must be 1."""
        batch_stride, head_stride, row_stride, d_stride = x.stride()
        shape = (x.size(0) * self.count, x.size(1), self.length, x.size(3))
        block_stride = batch_stride if self.count == 1 else self.step * row_stride
        return x[:, :, self.start :].as_strided(shape, (block_stride, head_stride, self.stride * row_stride, d_stride))

    def scatter(self, x: Float[Tensor, "batch heads rows d"], values: Float[Tensor, "block heads length d"]) -> None:
        self.gather(x).copy_(values)

    def scatter_add(
        self, x: Float[Tensor, "batch heads rows d"], values: Float[Tensor, "block heads length d"]
    ) -> None:
        """Add overlapping blocks in disjoint slices; otherwise several cores would add to one number at once."""
        size = self.step if self.count > 1 and self.stride == 1 else self.length
        for begin in range(0, self.length, size):
            length = min(size, self.length - begin)
            rows = StridedRows(self.start + begin * self.stride, length, self.count, self.step, self.stride)
            rows.gather(x).add_(values[:, :, begin : begin + size])


@dataclass(frozen=True)
class IndexedRows:
    """One block of rows in any order."""

    rows: tuple[int, ...]
    count: int = 1

    def indices(self, device: torch.device) -> Int[Tensor, "1 length"]:
        return torch.tensor([self.rows], dtype=torch.long, device=device)

    def in_phase(self, periods: tuple[int, ...]) -> bool:
        return True

    def gather(self, x: Float[Tensor, "batch heads rows d"]) -> Float[Tensor, "batch heads length d"]:
        return x.index_select(2, self.indices(x.device)[0])

    def scatter(self, x: Float[Tensor, "batch heads rows d"], values: Float[Tensor, "batch heads length d"]) -> None:
        x.index_copy_(2, self.indices(x.device)[0], values)

    def scatter_add(
        self, x: Float[Tensor, "batch heads rows d"], values: Float[Tensor, "batch heads length d"]
    ) -> None:
        x.index_add_(2, self.indices(x.device)[0], values)


Rows = StridedRows | IndexedRows
Schedule = Iterator[tuple[Rows, Rows]]
"""Rows of queries, each at most once, and the rows of keys to compare them with: block c with block c."""

LOCAL_BLOCK, SELECTED_BLOCK = 64, 512
"""Queries in a block: for keys near them, and for selected keys.

In windows of 256, blocks of 64 take 0.9 of the time of 128 and 0.75 of that of 256. In windows of 128, 32 gain nothing.
"""


def window(n_queries: int, n_keys: int, width: int, causal: bool) -> Schedule:
    """Compare each position with those less than ``width`` before it and, unless ``causal``, after it."""
    offset, ahead = n_keys - n_queries, 0 if causal else width
    size = min(LOCAL_BLOCK, max(width, 16))
    first = max(offset, width)  # the first position with a complete window
    count = max(0, (n_keys - ahead - first) // size)
    if count:
        yield (
            StridedRows(first - offset, size, count, size),
            StridedRows(first - width, width + size + ahead, count, size),
        )
    edges = [(offset, first), (first + count * size, n_keys)] if count else [(offset, n_keys)]
    for begin, end in (block for edge in edges for block in _split(*edge, LOCAL_BLOCK)):
        low, high = max(0, begin - width), min(n_keys, end + ahead)
        if low < high:
            yield StridedRows(begin - offset, end - begin), StridedRows(low, high - low)


def block(n_queries: int, n_keys: int, size: int, causal: bool) -> Schedule:
    """Compare each block of ``size`` positions with itself: complete blocks together, incomplete ones alone."""
    offset = n_keys - n_queries
    first, last = -(-max(offset, 0) // size) * size, n_keys // size * size
    count = max(0, (last - first) // size)
    for begin, end in _split(0, size, LOCAL_BLOCK) if count else ():
        queries = StridedRows(first - offset + begin, end - begin, count, size)
        yield queries, StridedRows(first, end if causal else size, count, size)
    for start in range(max(offset, 0) // size * size, n_keys, size):
        if not first <= start < last:
            low, high = max(offset, start), min(n_keys, start + size)
            yield StridedRows(low - offset, high - low), StridedRows(start, high - start)


def column(n_queries: int, n_keys: int, stride: int) -> Schedule:
    """Compare positions that are equal modulo ``stride``; remainders with as many positions are computed together."""

    def shape(remainder: int) -> tuple[int, int, int]:
        first = (remainder - (n_keys - n_queries)) % stride
        return first - remainder, len(range(first, n_queries, stride)), len(range(remainder, n_keys, stride))

    for (shift, query_length, key_length), group in groupby(range(stride), shape):
        remainders = list(group)
        first, count = remainders[0], len(remainders)
        if query_length and key_length:
            queries = StridedRows(first + shift, query_length, count, 1, stride)
            yield queries, StridedRows(first, key_length, count, 1, stride)


def selected_keys(positions: tuple[int, ...], n_queries: int, n_keys: int, causal: bool) -> Schedule:
    """Compare all queries with the keys at ``positions``."""
    offset = n_keys - n_queries
    for begin, end in _split(offset, n_keys, SELECTED_BLOCK):
        keys = tuple(j for j in sorted(set(positions)) if j < (end if causal else n_keys))
        if keys:
            yield StridedRows(begin - offset, end - begin), IndexedRows(keys)


def selected_queries(positions: tuple[int, ...], n_queries: int, n_keys: int) -> Schedule:
    """Compare the queries at ``positions`` with all keys."""
    offset = n_keys - n_queries
    rows = tuple(i - offset for i in sorted(set(positions)) if offset <= i < n_keys)
    for begin, end in _split(0, len(rows), SELECTED_BLOCK):
        yield IndexedRows(rows[begin:end]), StridedRows(0, n_keys)


def _split(begin: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    return ((low, min(low + size, end)) for low in range(begin, end, size))
