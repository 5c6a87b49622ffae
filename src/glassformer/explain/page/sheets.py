"""A table of the walkthrough as the page writes it: labels that know their token, shaded cells, a sentence."""

import math
from base64 import b64encode
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from markupsafe import Markup
from numpy.typing import NDArray

from glassformer.explain.decimals import aligned, column_digits, decimal, weight
from glassformer.explain.figures.svg import visible
from glassformer.explain.formula.dataflow import input_names
from glassformer.explain.page.shades import shade_class
from glassformer.explain.walkthrough.step import Axis, TensorTable
from glassformer.text.words import END_OF_WORD, JOINER

TOKEN_AXES = ("position", "query", "key")


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
class Label:
    """The text of a row or column; the token that it is, when it is one: all with the same light up together.

    One that stands for several tokens spans them.
    """

    text: str
    side: str = ""
    position: int = 0
    span: int = 1

    @property
    def plain(self) -> str:
        """In a sentence: without the marks that say where a word ends or goes on."""
        return f"“{self.text.removesuffix(END_OF_WORD).replace(JOINER, '') or self.text}”" if self.side else self.text


@dataclass(frozen=True)
class SheetRow:
    label: Label
    cells: Markup
    total: str = ""


@dataclass(frozen=True)
class Sheet:
    """``rows_title`` and ``columns_title`` name queries and keys, in attention."""

    title: str
    rows_title: str
    columns_title: str
    columns: tuple[Label, ...]
    rows: tuple[SheetRow, ...]
    shade: str
    largest: float
    numbers: Slice
    summary: str

    @property
    def sums(self) -> bool:
        return any(row.total for row in self.rows)


@dataclass(frozen=True)
class Titles:
    sheet: str
    rows: str
    columns: str


def sheet_of(table: TensorTable, numbers: Numbers, failed: bool = False) -> Sheet:
    """``failed``: something in this step is not what its formula gives, so every cell is asked which it is."""
    kind: type[np.floating] = np.float64 if table.trace[table.name].dtype == torch.float64 else np.float32
    values = np.array(table.values, dtype=kind)
    width = values.shape[1]
    wrong: set[tuple[int, int]] = set()
    if failed:
        wrong = {divmod(place, width) for place, check in enumerate(table.checks()) if not check.passed}
    columns = table.columns
    titles = Titles(table.title, table.rows.title, "" if columns is None else columns.title)
    return written(
        titles,
        labels_of(table, table.rows),
        (Label("value"),) if columns is None else labels_of(table, columns),
        values.astype(np.float64),
        table.shade,
        Slice(numbers.add(values)),
        totals=columns is not None and table.shade == "weights" and whole(table, columns),
        wrong=wrong,
    )


def written(
    titles: Titles,
    rows: Sequence[Label],
    columns: Sequence[Label],
    values: NDArray[np.float64],
    shade: str,
    numbers: Slice,
    *,
    totals: bool = False,
    wrong: Collection[tuple[int, int]] = (),
) -> Sheet:
    finite = np.abs(values[np.isfinite(values)])
    largest = float(finite.max()) if finite.size else 0.0
    marked = [
        SheetRow(
            label,
            cells_of(line, shade, largest, {column for row, column in wrong if row == place}),
            f"{line.sum():.2f}" if totals else "",
        )
        for place, (label, line) in enumerate(zip(rows, values, strict=True))
    ]
    summary = summary_of(rows, columns, values, shade)
    return Sheet(
        titles.sheet, titles.rows, titles.columns, tuple(columns), tuple(marked), shade, largest, numbers, summary
    )


def cells_of(line: NDArray[np.float64], shade: str, largest: float, wrong: set[int]) -> Markup:
    """The cells of a row. Only numbers and the names of classes get in here, so nothing is left to escape."""
    digits = column_digits(largest)
    parts = []
    for place, value in enumerate(line.tolist()):
        name = shade_class(value, shade, largest)
        text = number(value, shade, digits)
        if place in wrong:
            name, text = f"{name} wrong".strip(), f"✗ {text}"
        parts.append(f'<td class="{name}">{text}</td>' if name else f"<td>{text}</td>")
    return Markup("".join(parts))


def number(value: float, shade: str, digits: int) -> str:
    """Cell of a table, by its shade."""
    if shade == "weights" and math.isfinite(value):
        return weight(value)
    return aligned(value, digits) if shade and math.isfinite(value) else decimal(value)


def summary_of(rows: Sequence[Label], columns: Sequence[Label], values: NDArray[np.float64], shade: str) -> str:
    """One sentence: where the most is, and the least."""
    if not np.isfinite(values).any():
        return "No number here is finite."
    high = _where(np.where(np.isfinite(values), values, -np.inf).argmax(), values)
    low = _where(np.where(np.isfinite(values), values, np.inf).argmin(), values)
    if shade == "weights":
        return (
            f"The largest weight is {values[high]:.2f}: {rows[high[0]].plain} asks {columns[high[1]].plain}; "
            f"a row spreads over {math.exp(min(entropy(values), 700)):.1f} entries (e to its mean entropy)."
        )
    return (
        f"From {decimal(float(values[low]))} ({_named(rows, columns, low)}) "
        f"to {decimal(float(values[high]))} ({_named(rows, columns, high)})."
    )


def entropy(weights: NDArray[np.float64]) -> float:
    """Entropy of a row in nats, the mean over the rows."""
    return float(-(weights * np.log(np.where(weights > 0, weights, 1.0))).sum(-1).mean())


def labels_of(table: TensorTable, axis: Axis) -> tuple[Label, ...]:
    side = side_of(input_names(table.trace.model), table.name, axis.name)
    return tuple(
        Label(visible(text), side, place) if side else Label(visible(text))
        for place, text in zip(axis.indices, axis.labels, strict=True)
    )


def side_of(inputs: Sequence[str], name: str, axis: str) -> str:
    """Name of the input that an axis of a recorded tensor indexes; empty for other axes."""
    if axis not in TOKEN_AXES:
        return ""
    if len(inputs) == 1:
        return inputs[0]
    if axis == "key" and ".cross_attention." in name:
        return "source"
    return "source" if name.startswith(("encoder.", "source_embedding.", "memory")) else "target"


def whole(table: TensorTable, columns: Axis) -> bool:
    """True if the table has every column of the tensor."""
    return len(columns.labels) == table.trace[table.name].size(table.trace.axes(table.name).index(columns.name))


def _where(place: np.intp, values: NDArray[np.float64]) -> tuple[int, int]:
    row, column = divmod(int(place), values.shape[1])
    return row, column


def _named(rows: Sequence[Label], columns: Sequence[Label], place: tuple[int, int]) -> str:
    row, column = rows[place[0]].plain, columns[place[1]].plain
    return row if len(columns) == 1 else f"{row}, {column}"
