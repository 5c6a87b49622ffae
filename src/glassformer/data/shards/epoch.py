"""Order of the samples of an epoch, computed from (seed, epoch), and its division into windows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from glassformer.data.sampling import Indices
from glassformer.data.shards.permutation import Permutation


@dataclass(frozen=True)
class Draws:
    """Draws of an epoch from one set: all ``size`` samples ``copies`` times, then ``extra`` ones by chance."""

    first: int  # number of its first sample, or of its first value
    step: int  # from one sample to the next
    size: int
    copies: int
    extra: int

    def __len__(self) -> int:
        return self.copies * self.size + self.extra


@dataclass(frozen=True)
class EpochOrder:
    """Samples of an epoch, by their position from 0 to ``len`` - 1, and windows of consecutive positions.

    Windows have at most ``window`` samples, their sizes equal to within 1. The order is a computed permutation of the
    draws of all sets. It takes no memory, and a position of the epoch is one integer.
    """

    draws: tuple[Draws, ...]
    window: int
    seed: int
    epoch: int

    @classmethod
    def of(cls, sizes: Sequence[int], weights: Sequence[float], window: int, seed: int, epoch: int) -> Self:
        """The order of samples that are numbered from the first set to the last; ``weights`` as in ``Mixture``."""
        generator = np.random.default_rng((seed, epoch))
        starts = np.cumsum([0, *sizes]).tolist()
        draws = (_draws(first, 1, size, weight, generator) for first, size, weight in zip(starts, sizes, weights))
        return cls(tuple(draws), window, seed, epoch)

    @classmethod
    def of_stream(
        cls, sizes: Sequence[int], weights: Sequence[float], context: int, window: int, seed: int, epoch: int
    ) -> Self:
        """Windows of ``context`` values and the one after it, at offsets that are drawn as in ``in_windows``."""
        generator, draws = np.random.default_rng((seed, epoch)), list[Draws]()
        for start, size, weight in zip(np.cumsum([0, *sizes]).tolist(), sizes, weights):
            last = size - context - 1
            offset = int(generator.integers(min(context, last + 1)))
            n_windows = (last - offset) // context + 1
            draws.append(_draws(start + offset, context, n_windows, weight, generator))
        return cls(tuple(draws), window, seed, epoch)

    def __len__(self) -> int:
        return sum(map(len, self.draws))

    @property
    def n_windows(self) -> int:
        return -(-len(self) // self.window)

    def begin(self, window: int) -> int:
        """Position of the first sample of a window; of the window after the last one, the length of the epoch."""
        return window * len(self) // self.n_windows

    def window_of(self, position: int) -> int:
        """The window with the sample at ``position``."""
        window = position * self.n_windows // len(self)
        return window + (self.begin(window + 1) <= position)

    def samples(self, window: int) -> Indices:
        """Numbers of the samples of a window, in the order of the epoch."""
        positions = np.arange(self.begin(window), self.begin(window + 1))
        numbers = Permutation.of(len(self), self.seed, self.epoch)(positions)
        bounds = np.cumsum([0, *map(len, self.draws)])
        owners = np.searchsorted(bounds, numbers, side="right") - 1
        samples = np.empty_like(numbers)
        for number in np.unique(owners).tolist():
            mine = owners == number
            samples[mine] = self._drawn(number, numbers[mine] - bounds[number])
        return samples

    def _drawn(self, number: int, within: Indices) -> Indices:
        """Samples by their positions in the draws of one set."""
        draws = self.draws[number]
        samples = within % draws.size
        extra = within >= draws.copies * draws.size
        if extra.any():
            chosen = Permutation.of(draws.size, self.seed, self.epoch, 1 + number)
            samples[extra] = chosen(within[extra] - draws.copies * draws.size)
        return draws.first + draws.step * samples


def _draws(first: int, step: int, size: int, weight: float, generator: np.random.Generator) -> Draws:
    """The odd part of a weight is drawn as in ``repeated``."""
    whole, part = divmod(weight, 1.0)
    extra = max(int(part * size + generator.random()), 0 if whole else 1) if part else 0
    return Draws(first, step, size, int(whole), min(extra, size))
