"""Which rows share a batch: those of similar length, as many as a budget of padded tokens holds."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
    """``source`` and ``target``: the width of every row.

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
    Sorting is stable: ties must not fall otherwise on another machine, or a resumed run would see other batches.
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
