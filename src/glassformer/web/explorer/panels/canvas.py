"""A large tensor on a canvas: what the page knows of it, and the raw numbers of a region, which the page requests."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import parse_qs

import numpy as np
from numpy.typing import NDArray

from glassformer.errors import DataError
from glassformer.explain.example import Example
from glassformer.explain.matrix import Label
from glassformer.text.decimals import decimal
from glassformer.web.explorer.panels.chain import values_of
from glassformer.web.explorer.picture import pooled
from glassformer.web.explorer.places import TOKENS, grid_axes, kind_of, labels_of, size_of, tensor_of
from glassformer.web.explorer.selection import LARGEST_INDEX, Selection

WHOLE = 64
"""Rows and columns up to which a tensor is a picture in the page; a larger one is drawn on a canvas."""
LARGEST_SIDE = 256
"""Rows and columns of one answer; a larger region is pooled."""


@dataclass(frozen=True)
class MatrixRegion:
    """Rows and columns of a tensor."""

    top: int
    left: int
    height: int
    width: int

    @classmethod
    def parse(cls, query: str) -> "MatrixRegion":
        """The region of an address, ``top=0&left=0&height=64&width=64``. ``DataError`` for what is no number."""
        texts = parse_qs(query)
        numbers = []
        for name in ("top", "left", "height", "width"):
            text = texts.get(name, [""])[-1]
            if not (text.isdecimal() and text.isascii() and len(text) <= len(str(LARGEST_INDEX))):
                raise DataError(f"{name}={text[:20]!r} is no number of rows or columns; give a whole number")
            numbers.append(int(text))
        return cls(*numbers)

    def within(self, rows: int, columns: int) -> "MatrixRegion":
        """The part inside a tensor. ``DataError`` if there is none."""
        height, width = min(self.height, rows - self.top), min(self.width, columns - self.left)
        if height <= 0 or width <= 0:
            raise DataError(
                f"rows from {self.top:,} and columns from {self.left:,} are outside {rows:,} × {columns:,}; "
                "choose a region inside"
            )
        return replace(self, height=height, width=width)

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of the block that one number of the answer stands for."""
        return -(-self.height // LARGEST_SIDE), -(-self.width // LARGEST_SIDE)


@dataclass(frozen=True)
class CanvasView:
    """``numbers`` and ``place`` are addresses: of the raw numbers, and of one number without row and column.

    Labels are in one text, a line each; empty, rows or columns are named by their number.
    """

    rows: int
    columns: int
    kind: str
    high: float
    extent: str
    row_name: str
    column_name: str
    row_labels: str
    column_labels: str
    row: int
    column: int
    numbers: str
    place: str
    statement: str


def canvas_of(example: Example, selection: Selection) -> CanvasView | None:
    """The canvas of the selected tensor; None if it is small, has one axis, or has an axis of a vocabulary."""
    name = tensor_of(selection)
    axes = grid_axes(example, name)
    sizes = [size_of(example, name, axis) for axis in axes]
    if len(axes) < 2 or "vocab" in axes or max(sizes) <= WHOLE:
        return None
    values, kind = values_of(example, name, selection.head or 0), kind_of(name)
    high = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    (row_name, row_labels), (column_name, column_labels) = (_labels(example, name, axis) for axis in axes)
    place = replace(selection, row=None, column=None)
    low = 0.0 if kind == "weights" else -high
    return CanvasView(
        sizes[0],
        sizes[1],
        kind,
        high,
        f"{decimal(low)} … {decimal(high)}",
        row_name,
        column_name,
        row_labels,
        column_labels,
        selection.row or 0,
        selection.column or 0,
        f"matrix{place.address}",
        place.address,
        _statement(MatrixRegion(0, 0, *sizes)),
    )


def region_bytes(example: Example, selection: Selection, query: str) -> bytes:
    """The numbers of the region in ``query``, little-endian float32, row by row.

    Of a region with more than ``LARGEST_SIDE`` rows or columns, one number for each block: that of the largest
    absolute value.
    """
    name = tensor_of(selection)
    if not selection.stage or len(grid_axes(example, name)) < 2:
        raise DataError("this view is no matrix; choose a tensor with rows and columns")
    values: NDArray[np.float64] = values_of(example, name, selection.head or 0)
    region = MatrixRegion.parse(query).within(*values.shape)
    part = values[region.top : region.top + region.height, region.left : region.left + region.width]
    return pooled(part, *region.block).astype("<f4").tobytes()


def _statement(region: MatrixRegion) -> str:
    rows, columns = region.block
    sizes = f"{region.height:,} × {region.width:,} numbers"
    if rows == columns == 1:
        return f"{sizes}, each drawn."
    return f"{sizes}; each block of {rows} × {columns} shows its largest one. Zoom in for every number."


def _labels(example: Example, name: str, axis: str) -> tuple[str, str]:
    """Title of an axis, and its labels if they are tokens."""
    title, labels = labels_of(example, name, axis)
    return title, "\n".join(_texts(labels)) if axis in TOKENS else ""


def _texts(labels: Sequence[Label]) -> list[str]:
    """Texts of tokens; a visible text has no line break."""
    return [label.short for label in labels]
