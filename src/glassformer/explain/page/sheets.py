"""A matrix as the page draws it: shaded cells, sums of rows, a sentence, and every number in full.

Colors are classes of a stylesheet: from 0 to 1 in cividis, and around 0 from blue to orange.
"""

import math
from base64 import b64encode
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import torch
from markupsafe import Markup
from numpy.typing import NDArray

from glassformer.explain.analysis.attention_measures import entropy
from glassformer.explain.figures.svg import mixed, rgb, shade
from glassformer.explain.matrix import Matrix, Scale
from glassformer.explain.walkthrough.step import TracedMatrix
from glassformer.text.decimals import aligned, decimal, weight


@dataclass(frozen=True)
class Slice:
    """Start of a matrix among the numbers of an array."""

    array: str
    start: int = 0


@dataclass(frozen=True)
class RawArray:
    """``kind`` is ``float16``, ``float32`` or ``float64``."""

    key: str
    kind: str
    base64: str


class Numbers:
    """The numbers of a page as raw little-endian bytes in base64, each array once."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, bytes], str] = {}

    def add(self, values: NDArray[np.floating]) -> str:
        """Add an array; return its key."""
        content = values.dtype.name, values.astype(values.dtype.newbyteorder("<")).tobytes()
        return self._keys.setdefault(content, f"n{len(self._keys)}")

    @property
    def arrays(self) -> list[RawArray]:
        return [RawArray(key, kind, b64encode(content).decode()) for (kind, content), key in self._keys.items()]


@dataclass(frozen=True)
class Sheet:
    """``cells`` has the shaded cells of each row of ``matrix``, ``sums`` the sum of each row or nothing."""

    matrix: Matrix
    cells: tuple[Markup, ...]
    numbers: Slice
    sums: tuple[str, ...]

    @property
    def summary(self) -> str:
        return summary_of(self.matrix, bool(self.sums))


def sheet_of_table(table: TracedMatrix, numbers: Numbers, failed: bool = False) -> Sheet:
    """``failed``: a check of this step failed, so the check of every cell is asked for, to mark the wrong ones."""
    kind: type[np.floating] = np.float64 if table.trace[table.name].dtype == torch.float64 else np.float32
    wrong: set[tuple[int, int]] = set()
    if failed:
        width = len(table.columns)
        wrong = {divmod(place, width) for place, check in enumerate(table.checks()) if not check.passed}
    sums = table.scale.kind == "weights" and table.has_every_column
    return sheet_of(table, Slice(numbers.add(table.values.astype(kind))), sums, wrong)


def sheet_of(matrix: Matrix, numbers: Slice, sums: bool, wrong: Collection[tuple[int, int]] = ()) -> Sheet:
    """``wrong`` are the rows and columns of cells that differ from their formula."""
    rows = matrix.values.tolist()
    cells = [_cells(row, matrix.scale, {j for i, j in wrong if i == place}) for place, row in enumerate(rows)]
    totals = tuple(aligned(total, 2) for total in matrix.values.sum(1)) if sums else ()
    return Sheet(matrix, tuple(cells), numbers, totals)


def _cells(row: list[float], scale: Scale, wrong: set[int]) -> Markup:
    """The cells of a row. Only numbers and the names of classes get in here, so nothing is left to escape."""
    parts = []
    for place, value in enumerate(row):
        name, text = shade_class(value, scale), scale.cell(value)
        if place in wrong:
            name, text = f"{name} wrong".strip(), f"✗ {text}"
        parts.append(f'<td class="{name}">{text}</td>' if name else f"<td>{text}</td>")
    return Markup("".join(parts))


def summary_of(matrix: Matrix, complete: bool = True) -> str:
    """One sentence: the largest number and the smallest, with their labels.

    ``complete`` is true if rows of weights have every column, so that their spread can be stated.
    """
    values = matrix.values
    if not np.isfinite(values).any():
        return "No number here is finite."
    high = _place(np.where(np.isfinite(values), values, -np.inf).argmax(), values)
    low = _place(np.where(np.isfinite(values), values, np.inf).argmin(), values)
    if matrix.scale.kind == "weights":
        row, column = matrix.rows.labels[high[0]].plain, matrix.columns.labels[high[1]].plain
        attends = matrix.rows.name in ("", "query")  # other tensors from 0 to 1 are probabilities
        where = f"{row} attends to {column}" if attends else f"{column}, in row {row}"
        largest = f"The largest {'weight' if attends else 'number'} is {weight(values[high])}: {where}"
        if not complete:
            return f"{largest}."
        spread = aligned(math.exp(min(entropy(values), 700)), 1)
        return f"{largest}; a row spreads over {spread} entries (e to its mean entropy)."
    return (
        f"From {decimal(float(values[low]))} ({_named(matrix, low)}) "
        f"to {decimal(float(values[high]))} ({_named(matrix, high)})."
    )


def _place(index: np.intp, values: NDArray[np.float64]) -> tuple[int, int]:
    row, column = divmod(int(index), values.shape[1])
    return row, column


def _named(matrix: Matrix, place: tuple[int, int]) -> str:
    row, column = matrix.rows.labels[place[0]].plain, matrix.columns.labels[place[1]].plain
    return row if len(matrix.columns) == 1 else f"{row}, {column}"


LEVELS = 32
"""Shades from 0 to 1."""
EITHER_SIDE = 12
"""Shades below 0, and as many above."""

_LIGHT = {"zero": "#ffffff", "below": "#3f7fc4", "above": "#d9772e"}
_DARK = {"zero": "#1b1f27", "below": "#5b9be0", "above": "#e38f47"}


def palette() -> list[str]:
    """The shades from 0 to 1."""
    return [shade(level / (LEVELS - 1)) for level in range(LEVELS)]


def shade_class(value: float, scale: Scale) -> str:
    """The class of a cell: ``w0`` to ``w31``, or ``s0`` to ``s24`` with ``s12`` at 0; ``x`` for NaN."""
    if not math.isfinite(value):
        return "x"
    if scale.kind == "weights":
        return f"w{round(min(max(value, 0.0), 1.0) * (LEVELS - 1))}"
    if scale.kind == "signed":
        part = min(max(value / scale.high, -1.0), 1.0) if scale.high else 0.0
        return f"s{round((part + 1) * EITHER_SIDE)}"
    return ""


def stylesheet() -> str:
    """A rule for each class; those around 0 differ on light and on dark."""
    rules = [f".w{level}{{background:{color};color:{_ink(color)}}}" for level, color in enumerate(palette())]
    for level in range(2 * EITHER_SIDE + 1):
        light, dark = _signed(level, _LIGHT), _signed(level, _DARK)
        inks = f"light-dark({_ink(light)},{_ink(dark)})"
        rules.append(f".s{level}{{background:light-dark({light},{dark});color:{inks}}}")
    return "\n".join([*rules, _bar("weights", palette())])


def _bar(name: str, colors: list[str]) -> str:
    return f".bar.{name} i{{background:linear-gradient(to right,{','.join(colors[::3])},{colors[-1]})}}"


def _signed(level: int, colors: dict[str, str]) -> str:
    part = (level - EITHER_SIDE) / EITHER_SIDE
    return mixed(colors["zero"], colors["below" if part < 0 else "above"], abs(part))


def _ink(color: str) -> str:
    """Black or white, whichever has the higher contrast, 4.58 at least (WCAG 2.2, 1.4.3)."""
    linear = [part / 3294.6 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in rgb(color)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "#fff"
