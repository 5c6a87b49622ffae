"""Matrices with labels, as plain data: what every picture and table is drawn from."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from glassformer.errors import DataError

LARGEST = 64  # rows and columns of a matrix that is shown cell by cell


@dataclass(frozen=True, eq=False)
class Panel:
    """One matrix: ``values[i, j]`` belongs to ``rows[i]`` and ``columns[j]``."""

    title: str
    rows: list[str]
    columns: list[str]
    values: npt.NDArray[np.float64]
    picture: npt.NDArray[np.float64] | None = None
    """Picture below the matrix, ``[row, column, channel]`` from 0 to 1."""

    def __post_init__(self) -> None:
        assert self.values.shape == (len(self.rows), len(self.columns))
        if not self.values.size:
            raise DataError("there is nothing to show: every token is left out; give a longer text or keep them")


@dataclass(frozen=True, eq=False)
class Panels:
    """Panels with the same axes; the titles of the axes name queries and keys if the panels are attention.

    Colors go from ``low`` to ``high``. The numbers are exact and complete. Pictures and tables of more than
    ``largest`` rows or columns are pooled, and their title says so.
    """

    name: str
    title: str
    row_axis: str
    column_axis: str
    value_axis: str
    panels: list[Panel]
    low: float = 0.0
    high: float = 1.0
    largest: int = LARGEST
    """Largest number of rows or columns that pictures and tables show without pooling."""

    def pooled(self) -> Self:
        """At most ``largest`` rows and columns a panel, each the maximum of those it stands for, so that no peak is
        lost; the title says so. Without larger panels the same object."""
        shape = [max(panel.values.shape[axis] for panel in self.panels) for axis in (0, 1)]
        sizes = [-(-length // self.largest) for length in shape]
        if sizes == [1, 1]:
            return self
        cells = "{} × {} pooled by max, {} × {} to a cell".format(*shape, *sizes)
        return replace(self, title=f"{self.title} · {cells}", panels=[_pool(panel, sizes) for panel in self.panels])


def _pool(panel: Panel, sizes: list[int]) -> Panel:
    values, labels = panel.values, [panel.rows, panel.columns]
    for axis, size in enumerate(sizes):
        starts = range(0, len(labels[axis]), size)
        values = np.maximum.reduceat(values, list(starts), axis)
        groups = [labels[axis][start : start + size] for start in starts]
        labels[axis] = [group[0] if len(group) == 1 else f"{group[0]}…{group[-1]}" for group in groups]
    return Panel(panel.title, labels[0], labels[1], values, panel.picture)
