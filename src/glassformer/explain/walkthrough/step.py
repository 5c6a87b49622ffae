"""A step of the walkthrough: sentences, a formula, tables of numbers, checks. Terminal and report draw it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.errors import ConfigError
from glassformer.explain.formula.formula import Check, Formula, explain
from glassformer.explain.matrix import LARGEST, PLAIN, SINGLE_COLUMN, WEIGHTS, Axis, Kind, Label, Matrix, Scale
from glassformer.explain.trace import Trace
from glassformer.text.decimals import difference
from glassformer.text.words import END_OF_WORD, JOINER

MAX_LABELS = LARGEST
"""Maximum rows or columns of a table; its title says how many are left out."""

MAX_DIMENSIONS = 8
"""Entries of an axis without labels that a table holds."""


@dataclass(frozen=True, eq=False)
class TracedMatrix(Matrix):
    """A matrix whose numbers are a rectangle of one recorded tensor, each with its formula."""

    trace: Trace = field(kw_only=True, repr=False)
    name: str = field(kw_only=True)
    """Name of the tensor."""
    fixed: tuple[tuple[str, int], ...] = ()
    """Index along the tensor's other axes, 0 by default."""

    @classmethod
    def of(
        cls, trace: Trace, name: str, title: str, rows: Axis, columns: Axis | None, fixed: Mapping[str, int], kind: Kind
    ) -> Self:
        """The rows and columns of the tensor ``name``; a vector has no ``columns``."""
        axes, part, sides = trace.axes(name), trace[name], {axis.name: axis for axis in (rows, columns) if axis}
        for dim in reversed(range(len(axes))):
            if (axis := sides.get(axes[dim])) is None:
                part = part.select(dim, fixed.get(axes[dim], 0))
            else:
                part = part.index_select(dim, torch.tensor(axis.indices, device=part.device))
        if columns is None:
            part = part[:, None]
        elif axes.index(rows.name) > axes.index(columns.name):
            part = part.T
        values = part.double().cpu().numpy()
        scale = {"weights": WEIGHTS, "signed": Scale.signed(values)}.get(kind, PLAIN)
        other = tuple(fixed.items())
        return cls(values, rows, columns or SINGLE_COLUMN, title, scale, trace=trace, name=name, fixed=other)

    def formula(self, row: int, column: int = 0) -> Formula:
        """Formula of the number in that row and column."""
        index = {**dict(self.fixed), self.rows.name: self.rows.indices[row]}
        if self.columns.name:
            index[self.columns.name] = self.columns.indices[column]
        return explain(self.trace, self.name, **index)

    def checks(self) -> list[Check]:
        """Checks of every number, computed again from its operands, row by row."""
        return [self.formula(row, column).check for row in range(len(self.rows)) for column in range(len(self.columns))]

    @property
    def has_every_column(self) -> bool:
        """True if no column of the tensor is left out."""
        axes = self.trace.axes(self.name)
        return self.columns.name in axes and len(self.columns) == self.trace[self.name].size(
            axes.index(self.columns.name)
        )


@dataclass(frozen=True)
class StepCheck:
    """A property of the computed numbers, and whether it holds."""

    text: str
    passed: bool


@dataclass(frozen=True)
class Pixels:
    """A picture that was read, ``[row, column, channel]`` from 0 to 1, and the side of its patches."""

    title: str
    values: NDArray[np.float64]
    patch: int


@dataclass(frozen=True)
class Step:
    """``what`` happens and ``why``; the ``formula``, as text; tables of numbers; the ``evaluation`` of one of them."""

    number: int
    path: str
    """The module that the step explains."""
    title: str
    what: str
    why: str
    formula: str
    reference: str
    tables: tuple[TracedMatrix, ...]
    checks: tuple[StepCheck, ...]
    evaluation: Formula | None = None
    words: tuple[tuple[str, ...], ...] = ()
    """Rows of text where there are no numbers: tokens, merges; the first row is the heading."""
    side: str = ""
    """Side of the example that has these tokens."""
    links: tuple[tuple[int, int], ...] = ()
    """Columns of ``words`` that hold a token, and how far it is from the row's own position."""
    headings: bool = False
    """True if the headings of ``words``, behind the first, are tokens."""
    image: "Pixels | None" = None
    caption: str = ""
    """Explanation of the columns and marks of ``words``."""

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)


def cut_axis(name: str, title: str, labels: Sequence[Label]) -> Axis:
    """The first ``MAX_LABELS`` labels; if there are more, the title says so."""
    cut = title if len(labels) <= MAX_LABELS else f"{title}, the first {MAX_LABELS} of {len(labels)}"
    return Axis(cut, tuple(labels[:MAX_LABELS]), name)


def checked(*tables: TracedMatrix) -> StepCheck:
    """Check every number of the tables against its formula."""
    checks = [check for table in tables for check in table.checks()]
    if not checks:
        raise ConfigError("a check of no numbers would say nothing; give a table with some")
    failed = sum(not check.passed for check in checks)
    largest = max(check.difference for check in checks)
    text = f"all {len(checks):,} numbers shown, computed again from their operands: largest |Δ| {difference(largest)}"
    return StepCheck(
        text if not failed else f"{failed:,} of {len(checks):,} numbers are not what their formula gives", not failed
    )


def legend(tokens: Sequence[str]) -> str:
    """Explain the word-boundary marks in ``tokens``; empty if there are none."""
    marks = [
        (END_OF_WORD, f"{END_OF_WORD} ends a word: a space follows, or the text ends."),
        (JOINER, f"{JOINER} joins: there is no space on that side."),
    ]
    return " ".join(meaning for mark, meaning in marks if any(mark in token for token in tokens))
