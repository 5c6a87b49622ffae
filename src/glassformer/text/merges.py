"""Byte-pair encoding by hand (Sennrich et al. 2016, algorithm 1), one merge at a time.

The ``tokenizers`` library encodes faster; this is the definition it is tested against, what a display of single merges
needs, and where BPE-dropout (Provilkov et al. 2020, algorithm 1) chooses anew for each sentence of each epoch.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

Symbols = tuple[int, ...]

_CACHED_WORDS = 200_000
_CACHED_LENGTH = 16  # in symbols; longer words are rare, or sentences of a script without spaces, which do not recur


class RankedMerge(NamedTuple):
    """A possible merge: its rank (how early it was learned, from 0), where in the word, and the symbol it makes."""

    rank: int
    position: int
    symbol: int

    def taken(self, word: Symbols) -> Symbols:
        return (*word[: self.position], self.symbol, *word[self.position + 2 :])


class MergeTable:
    """The learned merges, earliest first: which two symbols, and which one they become."""

    def __init__(self, pairs: Sequence[tuple[int, int]], merged: Sequence[int]) -> None:
        self._learned = {pair: (rank, new) for rank, (pair, new) in enumerate(zip(pairs, merged, strict=True))}
        self._cache: dict[Symbols, list[RankedMerge]] = {}

    def possible(self, word: Symbols) -> list[RankedMerge]:
        """Every merge possible in a word, the earliest learned first, then the leftmost."""
        steps = self._cache.get(word)
        if steps is None:
            steps = sorted(self._search(word))
            if len(word) <= _CACHED_LENGTH:
                if len(self._cache) >= _CACHED_WORDS:
                    self._cache = {}
                self._cache[word] = steps
        return steps

    def segment(self, word: Symbols, dropped: Callable[[], bool]) -> Symbols:
        """BPE-dropout: before every merge each possible one is dropped if ``dropped()``; the first one left is taken.

        A word is done when none is left. Those behind the first one left cannot matter: nothing is drawn for them.
        """
        while True:
            for step in self.possible(word):
                if not dropped():
                    word = step.taken(word)
                    break
            else:
                return word

    def _search(self, word: Symbols) -> Iterator[RankedMerge]:
        learned = self._learned
        for position, pair in enumerate(pairwise(word)):
            if pair in learned:
                rank, symbol = learned[pair]
                yield RankedMerge(rank, position, symbol)


def dropper(dropout: float, generator: np.random.Generator) -> Callable[[], bool]:
    """``dropped()``: true with probability ``dropout``. It draws in blocks: one draw at a time is ten times slower."""
    draws: Iterator[bool] = iter(())

    def dropped() -> bool:
        nonlocal draws
        draw = next(draws, None)
        if draw is None:
            draws = iter((generator.random(256) < dropout).tolist())
            draw = next(draws)
        return draw

    return dropped
