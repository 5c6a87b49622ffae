"""The share of answers that are right."""

from collections.abc import Sequence
from typing import TypeVar

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
