"""A tensor as a table: every number a link to its formula, and checked against it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

import numpy as np
from markupsafe import Markup

from glassformer.errors import ConfigError
from glassformer.explain.analysis.attention_measures import entropy
from glassformer.explain.example import Example
from glassformer.explain.matrix import Axis
from glassformer.explain.page.sheets import shade_class, summary_of
from glassformer.explain.walkthrough.step import TracedMatrix
from glassformer.text.decimals import aligned, decimal, difference
from glassformer.web.explorer.interventions import replaced_rows
from glassformer.web.explorer.panels.canvas import CanvasView, canvas_of
from glassformer.web.explorer.panels.chain import values_of
from glassformer.web.explorer.panels.wording import TensorText, tensor_text
from glassformer.web.explorer.picture import data_address
from glassformer.web.explorer.places import (
    axis_of,
    grid_axes,
    head_count,
    head_in,
    kind_of,
    size_of,
    split_name,
    tensor_of,
)
from glassformer.web.explorer.selection import Selection

TOKENS_LISTED, NUMBERS_LISTED = 32, 16
"""Entries of an axis that a table shows: of tokens, and of others; further ones are reached by the links below it."""
REPLACED = "This tensor was replaced by an intervention; its formula does not apply."
MAX_CHECKS = 640
"""Numbers of a table that are checked; of a larger one those of its first rows."""


@dataclass(frozen=True)
class PageLink:
    text: str
    address: str


@dataclass(frozen=True)
class MatrixTable:
    """``rows`` has the cells of each row; ``sums`` the sum of each row, if it must be 1."""

    name: str
    text: TensorText
    matrix: TracedMatrix
    cells: tuple[Markup, ...]
    sums: tuple[str, ...]
    summary: str
    check: str
    state: str
    """``passed``, ``failed``, or ``unchecked`` for numbers without a formula."""
    limit: str
    pages: tuple[PageLink, ...]
    overview: str
    """The whole tensor as a picture, if the table shows a part of it."""
    overview_text: str
    reference: str
    head: int | None
    canvas: CanvasView | None
    """The whole tensor on a canvas, if it is too large for a picture."""
    entropies: tuple[str, ...] = ()
    """Entropy of each row, if it is a distribution of which every number is shown."""
    mean_entropy: str = ""
    """The mean over all rows of the tensor, as it stands below the picture of a head."""

    @property
    def extent(self) -> str:
        """Number of the strongest colors on both sides of zero."""
        return decimal(self.matrix.scale.high)

    @property
    def passed(self) -> bool:
        """True if no number was found wrong."""
        return self.state != "failed"


def table_of(example: Example, selection: Selection) -> MatrixTable:
    """The table of the selected tensor, around the selected number."""
    name = tensor_of(selection)
    axes = grid_axes(example, name)
    windows = [_window(example, selection, name, place) for place in range(len(axes))]
    rows, *others = (axis_of(example, name, axis, window) for axis, window in zip(axes, windows, strict=True))
    columns: Axis | None = others[0] if others else None
    fixed = {"head": head_in(example, name, selection.head or 0)} if head_count(example, name) else {}
    part, _, sublayer, stage = split_name(example.model, name)
    text = tensor_text(stage, ".".join(filter(None, (part, sublayer))), example.model.get_submodule(selection.path))
    matrix = TracedMatrix.of(example.trace, name, text.meaning, rows, columns, fixed, kind_of(name))
    replaced = replaced_rows(selection.interventions, name, selection.head)
    wrong, state, check = (set(), "unchecked", REPLACED) if replaced is None else _checks(matrix, replaced)
    whole = matrix.scale.kind == "weights" and matrix.has_every_column and not name.endswith("mask")
    sizes = [size_of(example, name, axis) for axis in axes]
    cut = [size for size, window in zip(sizes, windows, strict=True) if len(window) < size]
    canvas = canvas_of(example, selection)
    pictured = cut and canvas is None and "vocab" not in axes
    return MatrixTable(
        name,
        text,
        matrix,
        tuple(_cells(matrix, selection, row, wrong) for row in range(len(rows))),
        tuple(aligned(total, 2) for total in matrix.values.sum(1)) if whole else (),
        _summary(example, matrix, fixed) if cut else _summary_of(matrix),
        check,
        state,
        _limit(sizes, windows, axes) if cut else "",
        tuple(_pages(selection, sizes, windows)) if cut else (),
        *(_overview(example, name, selection.head or 0) if pictured else ("", "")),
        _reference(example, matrix),
        selection.head if head_count(example, name) > 1 else None,
        canvas,
        tuple(aligned(entropy(row[None]), 2) for row in matrix.values) if whole else (),
        _mean_entropy(example, name, selection.head or 0) if name.endswith(".weights") else "",
    )


def _summary(example: Example, part: TracedMatrix, fixed: Mapping[str, int]) -> str:
    """Summary of the whole tensor, of which the table shows a part."""
    sizes = " × ".join(f"{size_of(example, part.name, axis):,}" for axis in grid_axes(example, part.name))
    return f"Whole tensor, {sizes}. {_summary_of(_whole(example, part.name, part.title, fixed))}"


def whole_matrix(example: Example, name: str, head: int) -> TracedMatrix:
    """Every number of a tensor, of one head, with the labels of both axes."""
    return _whole(example, name, "", {"head": head_in(example, name, head)} if head_count(example, name) else {})


def _whole(example: Example, name: str, title: str, fixed: Mapping[str, int]) -> TracedMatrix:
    axes = grid_axes(example, name)
    rows, *others = (axis_of(example, name, axis, range(size_of(example, name, axis))) for axis in axes)
    return TracedMatrix.of(example.trace, name, title, rows, others[0] if others else None, fixed, kind_of(name))


def _summary_of(matrix: TracedMatrix) -> str:
    """One sentence on the numbers; of a mask how many pairs it allows."""
    if matrix.name.endswith("mask"):
        return f"{int(matrix.values.sum()):,} of {matrix.values.size:,} pairs are allowed."
    return summary_of(matrix)


def _overview(example: Example, name: str, head: int) -> tuple[str, str]:
    """The picture of a whole tensor, in colors up to its largest number, and a sentence that gives this number."""
    values, kind = values_of(example, name, head), kind_of(name)
    largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    if kind == "weights" and largest:
        values = values / largest
    low = decimal(0.0 if kind == "weights" else -largest)
    return data_address(values, kind), f"The whole tensor: colors from {low} to {decimal(largest)}."


def _mean_entropy(example: Example, name: str, head: int) -> str:
    """A sentence on the spread of the rows of a head."""
    value = aligned(entropy(values_of(example, name, head)), 2)
    return f"Entropy of this head: {value} nats, the mean of the entropies of its rows."


def _window(example: Example, selection: Selection, name: str, place: int) -> Sequence[int]:
    """Indices of an axis that the table shows: around the selected one; of a vocabulary the largest."""
    axis = grid_axes(example, name)[place]
    size = size_of(example, name, axis)
    chosen = (selection.row if place == 0 else selection.column) or 0
    if axis == "vocab" and place == 1:
        return _largest(example, selection, name, chosen if selection.column is not None else None)
    most = TOKENS_LISTED if axis in ("position", "query", "key", "patch") else NUMBERS_LISTED
    start = min(chosen // most * most, max(0, size - most))
    return range(start, min(size, start + most))


def _largest(example: Example, selection: Selection, name: str, chosen: int | None) -> list[int]:
    """Words with the largest numbers at the selected row, or at the selected step, and the chosen word."""
    values = values_of(example, name, 0)
    row = selection.row if selection.row is not None else selection.step or 0
    order = [int(index) for index in (-values[min(row, len(values) - 1)]).argsort(kind="stable")[:NUMBERS_LISTED]]
    if chosen is not None and chosen not in order:
        order[-1] = chosen
    return order


def _limit(sizes: Sequence[int], windows: Sequence[Sequence[int]], axes: Sequence[str]) -> str:
    parts = []
    for size, window, axis, what in zip(sizes, windows, axes, ("rows", "columns"), strict=False):
        if len(window) < size and axis == "vocab":
            parts.append(f"the {len(window)} largest of {size:,} words")
        elif len(window) < size:
            parts.append(f"{what} {window[0]:,} to {window[-1]:,} of {size:,}")
    return f"The table shows {' and '.join(parts)}."


def _pages(selection: Selection, sizes: Sequence[int], windows: Sequence[Sequence[int]]) -> list[PageLink]:
    """Links to the numbers beside the table."""
    found = []
    for place, (size, window) in enumerate(zip(sizes, windows, strict=True)):
        if len(window) == size or not isinstance(window, range):
            continue
        what, key = ("rows", "row") if place == 0 else ("columns", "column")
        base = replace(selection, row=selection.row or 0, column=selection.column or (0 if len(sizes) > 1 else None))
        if window.start > 0:
            moved = replace(base, **{key: max(0, window.start - len(window))})  # type: ignore[arg-type]
            found.append(PageLink(f"← earlier {what}", moved.address))
        if window.stop < size:
            found.append(PageLink(f"further {what} →", replace(base, **{key: window.stop}).address))  # type: ignore[arg-type]
    return found


def _checks(matrix: TracedMatrix, replaced: Sequence[int] = ()) -> tuple[set[tuple[int, int]], str, str]:
    """Wrong cells, the state of the check, and a sentence on what was checked: all but the replaced rows."""
    width = len(matrix.columns)
    count = max(1, MAX_CHECKS // width)
    wrong, largest, checked, missing = set(), 0.0, 0, ""
    try:
        for row in range(min(count, len(matrix.rows))):
            if matrix.rows.indices[row] in replaced:
                continue
            for column in range(width):
                check = matrix.formula(row, column).check
                checked += 1
                largest = max(largest, check.difference)
                if not check.passed:
                    wrong.add((row, column))
    except ConfigError as error:
        missing = str(error)
    if wrong:
        return wrong, "failed", f"✗ {len(wrong):,} of {checked:,} numbers are not what their formula gives"
    if missing:
        return wrong, "unchecked", missing
    if not checked:
        return wrong, "unchecked", REPLACED
    of = f"all {checked:,}" if checked == matrix.values.size else f"{checked:,} of {matrix.values.size:,}"
    text = f"✓ {of} numbers shown are recomputed from their operands: largest |Δ| {difference(largest)}"
    return wrong, "passed", text


def _cells(matrix: TracedMatrix, selection: Selection, row: int, wrong: set[tuple[int, int]]) -> Markup:
    """The cells of a row, each a link to its number."""
    parts = []
    row_index = matrix.rows.indices[row]
    for column, value in enumerate(matrix.values[row].tolist()):
        index = matrix.columns.indices[column] if matrix.columns.name else None
        moved = replace(selection, row=row_index, column=index)
        name, text = shade_class(value, matrix.scale), matrix.scale.cell(value)
        if (row, column) in wrong:
            name, text = "wrong", f"✗ {text}"
        current = moved == selection
        mark = ' aria-current="true"' if current else ""
        focus = 0 if current or (selection.row is None and row == column == 0) else -1
        parts.append(
            f'<td class="{name}"{mark}><a href="{escape(moved.address)}" tabindex="{focus}" data-value="{value!r}" '
            f'data-key="cell-{row_index}-{index}">{text}</a></td>'
        )
    return Markup("".join(parts))


def _reference(example: Example, matrix: TracedMatrix) -> str:
    try:
        return matrix.formula(0, 0).reference
    except ConfigError:
        return ""
