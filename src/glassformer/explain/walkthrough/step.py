"""A step of the walkthrough: sentences, a formula, tables of numbers, checks. Terminal and report draw it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.errors import ConfigError
from glassformer.explain.decimals import difference
from glassformer.explain.formula.formula import Check, Formula, explain
from glassformer.explain.trace import Trace
from glassformer.text.words import END_OF_WORD, JOINER

MAX_LABELS = 64
"""Rows or columns that a table holds; more are left out, and its title says so."""

MAX_DIMENSIONS = 8
"""Entries of an axis without labels that a table holds."""


@dataclass(frozen=True)
class Axis:
    """One side of a table: an axis of the tensor, what it shows, and the text at each entry."""

    name: str
    title: str
    labels: tuple[str, ...]
    chosen: tuple[int, ...] = ()
    """Indices along the axis, one for each label; empty: the first ones."""

    @property
    def indices(self) -> Sequence[int]:
        """Index along the axis of each label."""
        return self.chosen or range(len(self.labels))


@dataclass(frozen=True)
class TensorTable:
    """A rectangle of one recorded tensor. ``rows`` is None for a single row. ``fixed`` are its other axes."""

    trace: Trace = field(repr=False)
    name: str
    title: str
    rows: Axis
    columns: Axis | None
    fixed: tuple[tuple[str, int], ...] = ()
    shade: str = ""
    """Colors: ``weights`` from 0 to 1, ``signed`` around 0, none if empty."""

    @property
    def values(self) -> list[list[float]]:
        """The numbers, row by row."""
        rows, columns, fixed = self.rows, self.columns, dict(self.fixed)
        sides = {axis.name: axis for axis in (rows, columns) if axis is not None}
        axes, part = self.trace.axes(self.name), self.trace[self.name]
        for dim in reversed(range(len(axes))):
            if (axis := sides.get(axes[dim])) is None:
                part = part.select(dim, fixed.get(axes[dim], 0))
            else:
                part = part.index_select(dim, torch.tensor(axis.indices, device=part.device))
        part = part.double()
        if columns is None:
            return part[:, None].tolist()
        turned = axes.index(rows.name) > axes.index(columns.name)
        return (part.T if turned else part).tolist()

    def formula(self, row: int, column: int = 0) -> Formula:
        """Formula of the number in that row and column of the table."""
        index = {**dict(self.fixed), self.rows.name: self.rows.indices[row]}
        if self.columns is not None:
            index[self.columns.name] = self.columns.indices[column]
        return explain(self.trace, self.name, **index)

    def checks(self) -> list[Check]:
        """Checks of every number of the table, computed again from its operands."""
        width = 1 if self.columns is None else len(self.columns.labels)
        return [self.formula(row, column).check for row in range(len(self.rows.labels)) for column in range(width)]


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
    tables: tuple[TensorTable, ...]
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


def tokens_axis(name: str, title: str, tokens: Sequence[str]) -> Axis:
    """Tokens beside their positions, the first ``MAX_LABELS`` of them."""
    return Axis(name, _cut(title, len(tokens)), tuple(tokens[:MAX_LABELS]))


def checked(*tables: TensorTable) -> StepCheck:
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


def _cut(title: str, count: int) -> str:
    return title if count <= MAX_LABELS else f"{title}, the first {MAX_LABELS} of {count}"
