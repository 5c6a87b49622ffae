"""Permutation of n numbers that is computed, not stored: a Feistel network with cycle walking (Black, Rogaway 2002)."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from glassformer.data.sampling import Indices

ROUNDS = 6
"""Four rounds are a pseudorandom permutation (Luby, Rackoff 1988); small domains need a few more to mix well."""

_U64 = NDArray[np.uint64]


@dataclass(frozen=True)
class Permutation:
    """A bijection of the numbers below ``size``, chosen by the keys of its rounds. It takes no memory."""

    size: int
    keys: tuple[int, ...]

    @classmethod
    def of(cls, size: int, *seed: int) -> Self:
        """The permutation of ``size`` numbers that belongs to ``seed``, numbers that are not negative."""
        keys = np.random.default_rng(seed).integers(0, 2**64, ROUNDS, np.uint64)
        return cls(size, tuple(keys.tolist()))

    def __call__(self, positions: Indices) -> Indices:
        """The numbers at ``positions``, each of which is below ``size``."""
        bits = max(2, (self.size - 1).bit_length())
        half = -(-bits // 2)
        values = positions.astype(np.uint64)
        values = self._encrypt(values, half)
        too_large = np.flatnonzero(values >= self.size)
        while len(too_large):  # walk along the cycle of a number until it is below ``size``
            values[too_large] = self._encrypt(values[too_large], half)
            too_large = too_large[values[too_large] >= self.size]
        return values.astype(np.int64)

    def _encrypt(self, values: _U64, half: int) -> _U64:
        """Permute the numbers of ``2 * half`` bits: the domain is at most four times as large as ``size``."""
        shift, mask = np.uint64(half), np.uint64((1 << half) - 1)
        left, right = values >> shift, values & mask
        for key in self.keys:
            left, right = right, left ^ (_mix(right ^ np.uint64(key)) & mask)
        return (left << shift) | right


def _mix(values: _U64) -> _U64:
    """Finalizer of splitmix64: each output bit depends on all input bits. Products are modulo 2⁶⁴."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
