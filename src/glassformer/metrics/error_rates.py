"""Word error rate, character error rate and exact match: edit distance over a corpus, without any normalization."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.metrics.class_report import check_parallel
from glassformer.metrics.translation import Score


def edit_distance(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """Levenshtein distance: the minimum number of insertions, deletions and substitutions between two sequences.

    Bit-parallel (Myers 1999, in the form of Hyyrö 2003): two integers encode a column of the distance table. Their bits
    mark where it rises and where it falls from one row to the next. Two lines of 150 characters take 150 steps, not
    22,500.
    """
    if not first:
        return len(second)
    rows = dict[Hashable, int]()
    for row, symbol in enumerate(first):
        rows[symbol] = rows.get(symbol, 0) | 1 << row
    every, last = (1 << len(first)) - 1, 1 << (len(first) - 1)
    rises, falls, distance = every, 0, len(first)
    for symbol in second:
        equal = rows.get(symbol, 0)
        diagonal = (((equal & rises) + rises) ^ rises) | equal | falls
        grows = falls | ~(diagonal | rises) & every
        shrinks = diagonal & rises
        distance += bool(grows & last) - bool(shrinks & last)
        grows = grows << 1 | 1  # first row: its distance is the length of the prefix of ``second``
        rises = (shrinks << 1 | ~(diagonal | falls | grows)) & every
        falls = grows & (diagonal | falls) & every
    return distance


class ErrorRate:
    """Edits as a percentage of the reference units, summed over the corpus (``CorpusMetric``)."""

    def __init__(self, name: str, split: Callable[[str], Sequence[str]]) -> None:
        self.name, self.split = name, split

    def counts(self, hypotheses: Sequence[str], references: Sequence[str]) -> NDArray[Any]:
        pairs = [(self.split(one), self.split(other)) for one, other in zip(hypotheses, references, strict=True)]
        return np.array([(edit_distance(one, other), len(other)) for one, other in pairs], np.int64)

    def score(self, counts: NDArray[Any]) -> float:
        """The rate of empty references is 100, or 0 if the hypotheses are empty too, as in TER."""
        edits, units = counts.tolist()
        return 100 * edits / units if units else 100.0 * bool(edits)

    def signature(self, **further: Any) -> str:
        return _signature({"case": "mixed", "unit": self.name, "norm": "no", **further})


class ExactMatch:
    """Percentage of lines that equal their reference character for character (``CorpusMetric``)."""

    def counts(self, hypotheses: Sequence[str], references: Sequence[str]) -> NDArray[Any]:
        return np.array([(one == other, 1) for one, other in zip(hypotheses, references, strict=True)], np.int64)

    def score(self, counts: NDArray[Any]) -> float:
        equal, lines = counts.tolist()
        return 100 * equal / lines

    def signature(self, **further: Any) -> str:
        return _signature({"case": "mixed", "unit": "line", "norm": "no", **further})


WORDS = ErrorRate("word", str.split)
CHARACTERS = ErrorRate("char", lambda line: line)


def wer(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Word error rate in percent. Words are separated by whitespace; case and punctuation count."""
    return _score(WORDS, hypotheses, references)


def cer(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Character error rate in percent, over Unicode code points without normalization; spaces count."""
    return _score(CHARACTERS, hypotheses, references)


def _score(metric: ErrorRate, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    check_parallel(hypotheses, references, ("hypotheses", "references"))
    return Score(metric.score(metric.counts(hypotheses, references).sum(0)), metric.signature())


def _signature(values: dict[str, Any]) -> str:
    return "|".join(f"{name}:{value}" for name, value in {"nrefs": 1, **values}.items())
