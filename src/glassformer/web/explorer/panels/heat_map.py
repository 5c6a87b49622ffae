"""A matrix with its labels as one drawing: an image of a pixel a number, and the tokens of both axes beside it."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassformer.explain.matrix import Axis, Label, Matrix
from glassformer.explain.page.sheets import shade_class
from glassformer.web.explorer.picture import data_address

LONGEST = 64
"""Rows and columns of a drawing; further ones are left out, with a note."""
WITH_NUMBERS = 400
"""Cells up to which each has its number as a tooltip."""
SIDE, LARGEST_CELL, SMALLEST_LABELED = 250, 18, 9
"""Pixels of the drawing's longer side, and of a cell."""
CHARACTER, LONGEST_TEXT = 6.7, 12


class HeatLabel(NamedTuple):
    x: float
    y: float
    text: str
    label: Label


class HeatCell(NamedTuple):
    x: float
    y: float
    text: str
    sign: str
    """Plus or minus of a large difference, so that color is not needed."""


@dataclass(frozen=True)
class HeatMap:
    """``image`` fills the rectangle at ``left``, ``top``; numbers are those of the matrix."""

    title: str
    summary: str
    image: str
    left: float
    top: float
    width: float
    height: float
    cell: float
    rows: tuple[HeatLabel, ...]
    columns: tuple[HeatLabel, ...]
    cells: tuple[HeatCell, ...]
    table: "HeatTable"
    note: str
    matrix: Matrix
    """All numbers."""

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of the whole drawing."""
        return round(self.left + self.width + 2, 1), round(self.top + self.height + 2, 1)


@dataclass(frozen=True)
class HeatTable:
    """The same numbers as a table: (class, text, exact value) of each cell."""

    rows: Axis
    columns: Axis
    cells: tuple[tuple[tuple[str, str, float], ...], ...]


def heat_map(title: str, matrix: Matrix, summary: str) -> HeatMap:
    """Draw a matrix of weights, or of signed numbers around a marked zero."""
    rows, columns = matrix.rows.labels[:LONGEST], matrix.columns.labels[:LONGEST]
    values = matrix.values[: len(rows), : len(columns)]
    cell = min(LARGEST_CELL, SIDE / max(len(rows), len(columns), 1))
    labeled = cell >= SMALLEST_LABELED
    left, top = ((_width(labels) if labeled else 4.0) for labels in (rows, columns))
    longest = max(matrix.values.shape)
    return HeatMap(
        title,
        summary,
        data_address(values, matrix.scale.kind),
        left,
        top,
        round(cell * len(columns), 2),
        round(cell * len(rows), 2),
        round(cell, 2),
        tuple(HeatLabel(left - 5, round(top + cell * (i + 0.5) + 4, 1), _short(one), one) for i, one in enumerate(rows))
        if labeled
        else (),
        tuple(
            HeatLabel(round(left + cell * (i + 0.5) + 4, 1), top - 5, _short(one), one) for i, one in enumerate(columns)
        )
        if labeled
        else (),
        _cells(matrix, values, (left, top), cell),
        _table(matrix),
        f"The first {LONGEST} of {longest:,} tokens are shown." if longest > LONGEST else "",
        matrix,
    )


def _cells(
    matrix: Matrix, values: NDArray[np.float64], corner: tuple[float, float], cell: float
) -> tuple[HeatCell, ...]:
    if values.size > WITH_NUMBERS:
        return ()
    found = []
    signed, high = matrix.scale.kind == "signed", matrix.scale.high
    for (i, j), value in np.ndenumerate(values):
        names = f"{matrix.rows.labels[i].plain} → {matrix.columns.labels[j].plain}"
        sign = "" if not signed or abs(value) < high / 2 or not high else "+" if value > 0 else "−"
        x, y = round(corner[0] + cell * j, 2), round(corner[1] + cell * i, 2)
        found.append(HeatCell(x, y, f"{names}: {matrix.scale.cell(float(value))}", sign))
    return tuple(found)


def _table(matrix: Matrix) -> HeatTable:
    rows, columns = matrix.rows.labels[:LONGEST], matrix.columns.labels[:LONGEST]
    cells = tuple(
        tuple((shade_class(value, matrix.scale), matrix.scale.cell(value), value) for value in row[: len(columns)])
        for row in matrix.values[: len(rows)].tolist()
    )
    return HeatTable(Axis(matrix.rows.title, rows), Axis(matrix.columns.title, columns), cells)


def _width(labels: tuple[Label, ...]) -> float:
    return round(10 + CHARACTER * max((len(_short(one)) for one in labels), default=0), 1)


def _short(label: Label) -> str:
    text = label.short
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
