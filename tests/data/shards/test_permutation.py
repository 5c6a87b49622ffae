"""The computed permutation and the order of an epoch."""

import numpy as np
import pytest

from glassformer.data.shards.epoch import EpochOrder
from glassformer.data.shards.permutation import Permutation


@pytest.mark.parametrize("size", [*range(1, 40), 63, 64, 65, 255, 257, 1000, 1023, 1024, 1025, 4097, 65_537, 200_001])
def test_every_number_has_one_position(size: int) -> None:
    numbers = Permutation.of(size, 1, 0)(np.arange(size))
    assert np.array_equal(np.sort(numbers), np.arange(size))


def test_a_part_of_a_large_permutation_needs_no_other_part() -> None:
    permutation = Permutation.of(10**12 + 7, 3, 1)
    positions = np.array([0, 5, 10**12, 10**12 + 6])
    numbers = permutation(positions)
    assert np.array_equal(permutation(positions[::-1]), numbers[::-1])
    assert len(set(numbers.tolist())) == 4
    assert ((numbers >= 0) & (numbers < 10**12 + 7)).all()


def test_seeds_and_epochs_have_other_orders() -> None:
    orders = {tuple(Permutation.of(50, seed, epoch)(np.arange(50)).tolist()) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25
    assert tuple(range(50)) not in orders


def test_known_values_stay() -> None:
    """A run resumes with the order it began with, on every machine and in later versions."""
    assert Permutation.of(10, 1, 0)(np.arange(10)).tolist() == KNOWN


KNOWN = [8, 7, 3, 5, 4, 9, 6, 0, 2, 1]


@pytest.mark.parametrize("size", [100, 1000])
def test_numbers_are_spread_evenly(size: int) -> None:
    """Each number is at each tenth of the order about equally often, and neighbors do not stay neighbors."""
    orders = np.stack([Permutation.of(size, 7, epoch)(np.arange(size)) for epoch in range(400)])
    tenths = np.stack([(orders[:, part].ravel() * 10 // size) for part in np.array_split(np.arange(size), 10)])
    counts = np.stack([np.bincount(row, minlength=10) for row in tenths])
    expected = tenths.shape[1] / 10
    assert np.abs(counts / expected - 1).max() < 0.12
    assert np.mean(np.abs(np.diff(orders, axis=1)) == 1) < 3 / size


@pytest.mark.parametrize(("size", "window"), [(1, 5), (10, 3), (100, 7), (1000, 1000), (1001, 64)])
def test_windows_divide_the_epoch(size: int, window: int) -> None:
    order = EpochOrder.of([size], [1.0], window, 2, 3)
    lengths = [len(order.samples(number)) for number in range(order.n_windows)]
    assert max(lengths) <= window and max(lengths) - min(lengths) <= 1
    assert sorted(np.concatenate([order.samples(number) for number in range(order.n_windows)])) == list(range(size))
    for position in range(size):
        number = order.window_of(position)
        assert order.begin(number) <= position < order.begin(number + 1)


def test_a_window_has_samples_from_everywhere_and_others_each_epoch() -> None:
    windows = [EpochOrder.of([10_000], [1.0], 100, seed, epoch).samples(3) for seed, epoch in ((1, 0), (1, 1), (2, 0))]
    assert len({tuple(window.tolist()) for window in windows}) == 3
    assert all(len(set((window // 1000).tolist())) == 10 for window in windows)
    windows = [EpochOrder.of_stream([10_000], [1.0], 8, 100, 1, epoch).samples(3) for epoch in (0, 1)]
    assert all(len(set((window // 1000).tolist())) == 10 for window in windows)


def test_weights_repeat_sets_and_draw_the_odd_part_anew() -> None:
    orders = [EpochOrder.of([10, 0, 20], [2.0, 1.0, 0.5], 6, 1, epoch) for epoch in range(6)]
    halves = set()
    for order in orders:
        numbers = np.concatenate([order.samples(window) for window in range(order.n_windows)])
        counts = np.bincount(numbers, minlength=30)
        assert set(counts[:10]) == {2} and counts[10:].max() == 1 and 10 <= counts[10:].sum() <= 11
        halves.add(tuple(np.flatnonzero(counts[10:])))
    assert len(halves) == 6
