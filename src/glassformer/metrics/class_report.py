"""Accuracy; precision, recall and F1 by class, their averages, and the confusion matrix; the same for spans of words.

Spans come from tags such as B-PER and I-PER (Tjong Kim Sang and Buchholz 2000). A span is correct if its type and both
of its ends are correct. One set of rules reads the schemes IOB1, IOB2 (BIO), BIOES and BILOU: that of the CoNLL shared
tasks. It accepts every sequence of tags: an I that cannot continue the previous span begins a new one.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from glassformer.errors import DataError

Label = TypeVar("Label")


def check_parallel(first: Sequence[object], second: Sequence[object], names: tuple[str, str]) -> None:
    """A ``DataError`` unless both have the same number of entries, and at least one."""
    if len(first) != len(second):
        raise DataError(
            f"{len(first)} {names[0]} but {len(second)} {names[1]}: they are compared in order; give as many of each"
        )
    if len(first) == 0:
        raise DataError(f"no {names[0]} and no {names[1]}; give at least one of each")


def accuracy(predictions: Sequence[Label], labels: Sequence[Label]) -> float:
    """The share of predictions that equal their label, from 0 to 1."""
    check_parallel(predictions, labels, ("predictions", "labels"))
    return sum(bool(predicted == label) for predicted, label in zip(predictions, labels)) / len(labels)


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The share of sentences that equal their reference character for character, from 0 to 1."""
    check_parallel(hypotheses, references, ("hypotheses", "references"))
    return accuracy(hypotheses, references)


class Rates(NamedTuple):
    """Rates from 0 to 1; ``support`` is the number of true members. A rate with denominator 0 is 0."""

    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class ClassReport:
    """Rates of each class that occurs, in order, and three averages.

    ``macro`` is the mean over classes, ``weighted`` the mean weighted by support, and ``micro`` the rates of the pooled
    counts. If every example has exactly one class, all three micro rates equal the accuracy.
    """

    classes: dict[str, Rates]
    averages: dict[str, Rates]

    @classmethod
    def of_counts(cls, counts: Mapping[str, tuple[int, int, int]]) -> "ClassReport":
        """Build a report from the numbers of correct, predicted and true members of each class."""
        classes = {name: _rates(*three) for name, three in counts.items()}
        correct, predicted, true = (sum(column) for column in zip(*counts.values())) if counts else (0, 0, 0)
        each = list(classes.values())
        averages = {
            "macro": _mean(each, [1] * len(each), true),
            "weighted": _mean(each, [one.support for one in each], true),
            "micro": _rates(correct, predicted, true),
        }
        return cls(classes, averages)

    def as_json(self) -> dict[str, Any]:
        return {
            "classes": {name: rates._asdict() for name, rates in self.classes.items()},
            "averages": {name: rates._asdict() for name, rates in self.averages.items()},
        }


@dataclass(frozen=True)
class Confusion:
    """``counts[i, j]`` examples of class ``labels[i]`` were predicted as ``labels[j]``."""

    labels: tuple[str, ...]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, predicted: Sequence[str], true: Sequence[str], labels: Sequence[str] = ()) -> "Confusion":
        """Count pairs of classes. The matrix has the classes that occur, in the order of ``labels`` or sorted."""
        check_parallel(predicted, true, ("predictions", "labels"))
        occurring = {*predicted, *true}
        ordered = tuple(label for label in labels if label in occurring) or tuple(sorted(occurring))
        if unknown := sorted(occurring.difference(ordered)):
            raise DataError(f"label {unknown[0]!r} is not one of {len(labels)} labels; list every label that occurs")
        place = {label: number for number, label in enumerate(ordered)}
        counts = np.zeros((len(ordered), len(ordered)), np.int64)
        np.add.at(counts, ([place[label] for label in true], [place[label] for label in predicted]), 1)
        return cls(ordered, counts)

    @property
    def accuracy(self) -> float:
        return float(self.counts.trace() / self.counts.sum())

    def report(self) -> ClassReport:
        columns = self.counts.diagonal(), self.counts.sum(0), self.counts.sum(1)
        return ClassReport.of_counts(dict(zip(self.labels, zip(*(column.tolist() for column in columns)))))

    def shares(self) -> NDArray[np.float64]:
        """Rows divided by their sums: how the members of each class were predicted. Zeros for an empty class."""
        return self.counts / np.maximum(self.counts.sum(1, keepdims=True), 1)

    def errors(self) -> list[tuple[str, str, int]]:
        """True class, predicted class and count of each kind of error, most frequent first."""
        places = [(i, j) for i, j in zip(*np.nonzero(self.counts)) if i != j]
        places.sort(key=lambda place: (-self.counts[place], place))
        return [(self.labels[i], self.labels[j], int(self.counts[i, j])) for i, j in places]

    def as_json(self) -> dict[str, Any]:
        return {"labels": list(self.labels), "matrix": self.counts.tolist()}


def set_report(predicted: Iterable[tuple[str, Hashable]], true: Iterable[tuple[str, Hashable]]) -> ClassReport:
    """Report on members that may be missed or invented, such as spans: pairs of a class and an identity."""
    found, expected = set(predicted), set(true)
    correct, all_found, all_expected = (
        Counter(name for name, _ in side) for side in (found & expected, found, expected)
    )
    names = sorted({*all_found, *all_expected})
    return ClassReport.of_counts({name: (correct[name], all_found[name], all_expected[name]) for name in names})


def _rates(correct: int, predicted: int, true: int) -> Rates:
    together = predicted + true
    return Rates(
        correct / predicted if predicted else 0.0,
        correct / true if true else 0.0,
        2 * correct / together if together else 0.0,
        true,
    )


def _mean(rates: list[Rates], weights: list[int], support: int) -> Rates:
    total = sum(weights)
    if not total:
        return Rates(0.0, 0.0, 0.0, support)
    precision, recall, f1 = (
        sum(one[place] * weight for one, weight in zip(rates, weights)) / total for place in range(3)
    )
    return Rates(precision, recall, f1, support)


TAG = re.compile(r"([BIESLU])-(.+)", re.DOTALL)
OUTSIDE = "O"


class Span(NamedTuple):
    """Words ``start`` to ``end`` (exclusive), counted from 0."""

    kind: str
    start: int
    end: int


def mark_spans(tags: Sequence[str]) -> bool:
    """True if every tag is O or a prefix with a type, and some tag opens or continues a span."""
    found = {tag for tag in tags if tag != OUTSIDE}
    return any(tag[:2] in ("B-", "I-") for tag in found) and all(TAG.fullmatch(tag) for tag in found)


def spans(tags: Sequence[str]) -> list[Span]:
    """The spans of one sentence, in order. A tag without a prefix is outside all spans."""
    found: list[Span] = []
    kind, start = "", -1  # the open span; -1: none
    for place, tag in enumerate([*tags, OUTSIDE]):
        match = TAG.fullmatch(tag)
        prefix, named = (match[1], match[2]) if match else (OUTSIDE, "")
        begins = prefix in "BSU" or (match is not None and (start < 0 or named != kind))
        if start >= 0 and (match is None or begins):
            found.append(Span(kind, start, place))
            start = -1
        if begins:
            kind, start = named, place
        if prefix in "ESLU":
            found.append(Span(kind, start, place + 1))
            start = -1
    return found


def span_report(predicted: Sequence[Sequence[str]], true: Sequence[Sequence[str]]) -> ClassReport:
    """Precision, recall and F1 of spans by type, over sentences of tags.

    ``micro`` is the F1 that papers on named entities and chunks report.
    """
    check_parallel(predicted, true, ("predicted sentences", "tagged sentences"))
    found, expected = (
        [(span.kind, (number, span)) for number, tags in enumerate(side) for span in spans(tags)]
        for side in (predicted, true)
    )
    return set_report(found, expected)
