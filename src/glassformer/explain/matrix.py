"""A matrix with the labels of both axes: what figures, tables, walkthrough, page and notebooks draw."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self
from unicodedata import combining, east_asian_width

import numpy as np
from numpy.typing import NDArray

from glassformer.errors import DataError
from glassformer.text.decimals import aligned, column_digits, decimal, weight
from glassformer.text.words import END_OF_WORD, JOINER

LARGEST = 64
"""Maximum number of rows and columns of a matrix that is drawn cell by cell."""
LONGEST_LABEL = 24

Kind = Literal["range", "weights", "signed", "plain"]
"""Colors: from low to high, as ``range``; of ``weights``, from 0 to 1; two hues around 0; none."""

_JOINS = "\u200c\u200d"  # invisible, but they decide which letters or emoji are seen


@dataclass(frozen=True)
class Label:
    """Text of a row or column. A token has the name of its input, ``side``, and its ``position`` there.

    A label of several tokens has their number as ``span``, the first one's position, and the same side.
    """

    text: str
    side: str = ""
    position: int = 0
    span: int = 1

    @property
    def visible(self) -> str:
        """The text with every character visible."""
        return visible(self.text)

    @property
    def short(self) -> str:
        """The visible text, cut with a … where it is long."""
        text = self.visible
        return text if columns_of(text) <= LONGEST_LABEL else text[: LONGEST_LABEL // 2] + "…" + text[-4:]

    @property
    def plain(self) -> str:
        """The text in a sentence: a token in quotes, without the marks of word boundaries."""
        text = self.visible
        return f"“{text.removesuffix(END_OF_WORD).replace(JOINER, '') or text}”" if self.side else text


@dataclass(frozen=True)
class Axis:
    """One side of a matrix: its title, and the label of each row or column.

    The axis of a recorded tensor has the tensor's ``name`` for it, and ``chosen``, the index of each label along it;
    empty, these are the first ones.
    """

    title: str
    labels: tuple[Label, ...]
    name: str = ""
    chosen: tuple[int, ...] = ()

    @classmethod
    def of(cls, title: str, texts: Iterable[str], name: str = "", chosen: tuple[int, ...] = ()) -> Self:
        """An axis whose labels are text only."""
        return cls(title, tuple(map(Label, texts)), name, chosen)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def texts(self) -> list[str]:
        """Text of each label."""
        return [label.text for label in self.labels]

    @property
    def indices(self) -> Sequence[int]:
        """Index of each label along the axis of the tensor."""
        return self.chosen or range(len(self.labels))

    def pooled(self, size: int) -> "Axis":
        """Groups of ``size`` labels, each named by its first and last."""
        groups = [self.labels[start : start + size] for start in range(0, len(self.labels), size)]
        return replace(self, labels=tuple(map(_joined, groups)), chosen=())


SINGLE_COLUMN = Axis.of("", ["value"])
"""The columns of a vector."""


@dataclass(frozen=True)
class Scale:
    """Meaning of the numbers of a matrix, ``title``, and the range of their colors."""

    title: str = ""
    low: float = 0.0
    high: float = 1.0
    kind: Kind = "range"

    @classmethod
    def signed(cls, values: NDArray[np.float64]) -> Self:
        """Colors around 0, as far as the largest finite value."""
        finite = np.abs(values[np.isfinite(values)])
        largest = float(finite.max()) if finite.size else 0.0
        return cls("", -largest, largest, "signed")

    def fraction(self, value: float) -> float:
        """Place of ``value`` from 0 (lowest color) to 1 (highest)."""
        return (value - self.low) / (self.high - self.low) if self.high > self.low else 0.0

    def cell(self, value: float) -> str:
        """``value`` in a table. Weights have two decimals, a column of signed numbers as many in each cell."""
        if self.kind == "plain" or not math.isfinite(value):
            return decimal(value)
        return weight(value) if self.kind == "weights" else aligned(value, column_digits(self.high))


WEIGHTS = Scale("attention", kind="weights")
PLAIN = Scale(kind="plain")


@dataclass(frozen=True, eq=False)
class Matrix:
    """Numbers with labels: ``values[i, j]`` belongs to row i and column j. All numbers are exact."""

    values: NDArray[np.float64]
    rows: Axis
    columns: Axis
    title: str = ""
    scale: Scale = WEIGHTS
    picture: NDArray[np.float64] | None = None
    """Picture below the matrix, ``[row, column, channel]`` from 0 to 1."""

    def __post_init__(self) -> None:
        assert self.values.shape == (len(self.rows), len(self.columns))
        if not self.values.size:
            raise DataError("there is nothing to show: every token is left out; give a longer text or keep them")

    def pooled(self, row_size: int, column_size: int) -> "Matrix":
        """The maximum of each block of ``row_size`` by ``column_size`` numbers, so that no peak is lost."""
        values = self.values
        for axis, size in enumerate((row_size, column_size)):
            values = np.maximum.reduceat(values, range(0, values.shape[axis], size), axis)
        rows, columns = self.rows.pooled(row_size), self.columns.pooled(column_size)
        return Matrix(values, rows, columns, self.title, self.scale, self.picture)


def visible(token: str) -> str:
    """``token`` as visible text: a space at an end as ␣, and a character without a sign, or that would reorder others,
    by its number."""
    inner = token.strip(" ")
    before = len(token) - len(token.lstrip(" ")) if inner else len(token)
    after = len(token) - before - len(inner)
    return "␣" * before + "".join(map(_visible_sign, inner)) + "␣" * after or "∅"


def columns_of(text: str) -> int:
    """Number of columns of ``text`` in a font of fixed width; East Asian signs and emoji take two."""
    signs = (c for c in text if not combining(c) and c not in _JOINS)
    return sum(2 if east_asian_width(sign) in "WF" else 1 for sign in signs)


def _visible_sign(character: str) -> str:
    return character if character.isprintable() or character in _JOINS else f"[U+{ord(character):04X}]"


def _joined(labels: Sequence[Label]) -> Label:
    if len(labels) == 1:
        return labels[0]
    text, span = f"{labels[0].text}…{labels[-1].text}", sum(label.span for label in labels)
    return Label(text, labels[0].side, labels[0].position, span)
