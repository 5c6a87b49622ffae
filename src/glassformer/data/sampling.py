"""Sampling: sentences that share a row, and rows of similar length that share a batch, drawn from a generator."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

CANDIDATES = 8
"""Pairs of one length among which the most balanced one for a row is chosen; saves 1 % of padding."""


@dataclass(frozen=True)
class Plan:
    """Batches of one epoch: batch ``i`` holds ``rows[starts[i]:stops[i]]``."""

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    padded_tokens: NDArray[np.int64]  # of each batch, both sides

    def __len__(self) -> int:
        return len(self.starts)

    def batch(self, position: int) -> NDArray[np.int64]:
        return self.rows[self.starts[position] : self.stops[position]]


def plan_batches(
    source: NDArray[np.int32],
    target: NDArray[np.int32],
    batch_tokens: int,
    noise: float,
    generator: np.random.Generator,
) -> Plan:
    """Plan the batches of an epoch from the widths of the rows, ``source`` and ``target``.

    A batch of n rows costs n times its widest side, and at most ``batch_tokens``. Widths are blurred by up to the
    share ``noise`` before sorting, and rows of one width come in random order, so that epochs have different batches.
    """
    rows = generator.permutation(len(source))
    rows = rows[_order_by_length(source[rows], target[rows], noise, generator)]
    source, target = source[rows], target[rows]
    bounds = _cut(np.maximum(source, target), batch_tokens)
    starts, stops = bounds[:-1], bounds[1:]
    widths = np.maximum.reduceat(source, starts).astype(np.int64) + np.maximum.reduceat(target, starts)
    shuffled = generator.permutation(len(starts))
    return Plan(rows, starts[shuffled], stops[shuffled], ((stops - starts) * widths)[shuffled])


def _order_by_length(
    source: NDArray[np.int32], target: NDArray[np.int32], noise: float, generator: np.random.Generator
) -> NDArray[np.int64]:
    """By target length, then source length: upwards for even target lengths, downwards for odd ones.

    A batch that spans two target lengths then holds the longest sources of both, or the shortest of both.
    Sorting is stable: ties must have the same order on every machine, or a resumed run would see other batches.
    """
    by_target, by_source = _blur(target, noise, generator), _blur(source, noise, generator)
    by_source[by_target % 2 == 1] *= -1
    return np.argsort((by_target << 32) + by_source, kind="stable")


def _blur(lengths: NDArray[np.int32], noise: float, generator: np.random.Generator) -> NDArray[np.int64]:
    if not noise:
        return lengths.astype(np.int64)
    factors = generator.uniform(1 - noise, 1 + noise, len(lengths))
    return np.rint(lengths * factors).astype(np.int64)


def _cut(longest: NDArray[np.int32], batch_tokens: int) -> NDArray[np.int64]:
    """Bounds of the fullest runs, from the start, in which rows times the longest side is at most ``batch_tokens``."""
    bounds = [0]
    while (start := bounds[-1]) < len(longest):
        most = batch_tokens // int(longest[start])
        widths = np.maximum.accumulate(longest[start : start + most])
        cost = widths.astype(np.int64) * np.arange(1, len(widths) + 1)
        bounds.append(start + int(np.searchsorted(cost, batch_tokens, side="right")))
    return np.array(bounds, np.int64)


@dataclass(frozen=True)
class Rows:
    """Row ``i`` holds ``examples[starts[i]:starts[i + 1]]`` and takes ``source[i]`` and ``target[i]`` tokens."""

    examples: NDArray[np.int64]
    starts: NDArray[np.int64]
    source: NDArray[np.int32]
    target: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.source)

    def row(self, number: int) -> NDArray[np.int64]:
        return self.examples[self.starts[number] : self.starts[number + 1]]


def pack_rows(
    examples: NDArray[np.int64],
    source: NDArray[np.int32],
    target: NDArray[np.int32],
    row_tokens: int,
    generator: np.random.Generator,
) -> Rows:
    """Pack pairs into rows. ``source`` and ``target``: tokens of every example, end tokens included.

    The longest remaining pair opens a row and sets its width, rounded up to a multiple of ``row_tokens``. The
    longest pairs that still fit fill it. With ``row_tokens=0`` every pair has a row.
    """
    examples = generator.permutation(examples)
    if not row_tokens:
        return Rows(examples, np.arange(len(examples) + 1), source[examples], target[examples])
    lengths = list(zip(source.tolist(), target.tolist(), strict=True))
    by_length = _by_length(examples, np.maximum(source, target)[examples])
    order, starts, widths = list[int](), [0], list[tuple[int, int]]()
    longest = len(by_length) - 1
    while len(order) < len(examples):
        while not by_length[longest]:
            longest -= 1
        opening = lengths[by_length[longest][-1]]
        width = [-(-length // row_tokens) * row_tokens for length in opening]
        order += _fill(by_length, lengths, width)
        starts.append(len(order))
        widths.append((width[0], width[1]))
    sides = np.array(widths, np.int32)
    return Rows(np.array(order), np.array(starts), sides[:, 0], sides[:, 1])


def _by_length(examples: NDArray[np.int64], longer_side: NDArray[np.int32]) -> list[list[int]]:
    """``examples`` by the length of their longer side, in their order."""
    order = np.argsort(longer_side, kind="stable")
    bounds = np.searchsorted(longer_side[order], np.arange(int(longer_side.max()) + 2))
    return [examples[order[start:stop]].tolist() for start, stop in pairwise(bounds)]


def _fill(by_length: list[list[int]], lengths: list[tuple[int, int]], width: list[int]) -> list[int]:
    """Take one row's pairs out of ``by_length``: always the longest that fit both sides."""
    row = list[int]()
    source, target = width
    longest = len(by_length) - 1
    while True:
        longest = min(longest, source, target) if row else longest
        while longest > 0 and not by_length[longest]:
            longest -= 1
        if longest <= 0:
            return row
        alike, uneven = by_length[longest], source - target
        first = max(0, len(alike) - (CANDIDATES if row else 1))
        chosen = min(range(first, len(alike)), key=lambda i: abs(uneven - lengths[alike[i]][0] + lengths[alike[i]][1]))
        alike[chosen], alike[-1] = alike[-1], alike[chosen]
        row.append(alike.pop())
        source, target = source - lengths[row[-1]][0], target - lengths[row[-1]][1]
