"""Matrices of attention: a small picture a head, one of them large, and all of a model's in three groups."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassformer.explain.example import Example
from glassformer.explain.figures import attention
from glassformer.explain.figures.panels import LARGEST
from glassformer.explain.figures.svg import visible
from glassformer.explain.figures.view import View
from glassformer.explain.page.sheets import (
    Label,
    Numbers,
    Sheet,
    Slice,
    Titles,
    entropy,
    labels_of,
    summary_of,
    whole,
    written,
)
from glassformer.explain.walkthrough.step import TensorTable

MAX_BYTES = 600_000
"""Size of all matrices of a page in float32 above which they are written in float16."""
TITLES = {
    ("encoder", "self_attention"): "The encoder attends to the source",
    ("decoder", "self_attention"): "The decoder attends to what it has written",
    ("decoder", "cross_attention"): "The decoder attends to the source",
}
OF_ONE_STACK = "The model attends to what it has read"


@dataclass(frozen=True)
class Head:
    """``entropy`` in nats and ``distance`` in tokens are means over the rows, before any pooling."""

    name: str
    title: str
    numbers: Slice
    entropy: float
    distance: float
    summary: str


@dataclass(frozen=True)
class Gallery:
    """``sheet`` is the first head's, with its numbers; the page puts another's in its place."""

    key: str
    title: str
    heads: tuple[Head, ...]
    sheet: Sheet
    note: str = ""
    across: int = 8
    """Number of pictures in a line: the heads of a layer."""

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.sheet.rows), len(self.sheet.columns)


def gallery_of(tables: Sequence[TensorTable], numbers: Numbers, key: str) -> Gallery:
    """Gallery of one attention: a table of weights for each head."""
    first = tables[0]
    assert first.columns is not None
    rows, columns = labels_of(first, first.rows), labels_of(first, first.columns)
    values = np.array([table.values for table in tables], dtype=np.float32)
    slices = _slices(numbers.add(values), values)
    weights = first.trace[first.name][0].double().cpu().numpy()
    heads = tuple(
        _head(f"head {dict(table.fixed)['head']}", table.title, place, weights[dict(table.fixed)["head"]])
        for table, place in zip(tables, slices, strict=True)
    )
    heads = tuple(
        _summarized(head, rows, columns, matrix.astype(np.float64)) for head, matrix in zip(heads, values, strict=True)
    )
    titles = Titles(first.title, first.rows.title, first.columns.title)
    sheet = written(
        titles, rows, columns, values[0].astype(np.float64), "weights", slices[0], totals=whole(first, first.columns)
    )
    return Gallery(key, "Every head of this attention", heads, sheet, across=_across(len(heads)))


def galleries_of(example: Example, numbers: Numbers) -> list[Gallery]:
    """Every layer and head of the model."""
    groups: dict[tuple[str, str], list[View]] = {}
    for name, path in attention.attention_views(example).items():
        if name.rpartition(".")[2] in ("self_attention", "cross_attention"):
            groups.setdefault((path.split(".")[0], path.rpartition(".")[2]), []).append(attention.view(example, name))
    order = sorted(groups, key=lambda group: list(TITLES).index(group))
    pooled = {group: [view.pooled() for view in groups[group]] for group in order}
    size = sum(4 * panel.values.size for found in pooled.values() for view in found for panel in view.panels)
    dtype = np.float32 if size <= MAX_BYTES else np.float16
    side = "" if example.translated else example.sides[0].name
    return [_gallery(_Group(*group, side), groups[group], pooled[group], numbers, dtype) for group in order]


@dataclass(frozen=True)
class _Group:
    stack: str
    kind: str
    only_side: str

    @property
    def title(self) -> str:
        return OF_ONE_STACK if self.only_side else TITLES[self.stack, self.kind]

    @property
    def asks(self) -> str:
        return self.only_side or ("source" if self.stack == "encoder" else "target")


def _gallery(
    group: _Group, views: list[View], pooled: list[View], numbers: Numbers, dtype: type[np.floating]
) -> Gallery:
    rows = _labels(views[0].panels[0].rows, pooled[0].panels[0].rows, group.asks)
    if group.kind == "cross_attention":  # named by what each step predicts, which it reads only at the next
        rows = [Label(label.text, label.side, label.position + 1, label.span) for label in rows]
    keys = "source" if group.kind == "cross_attention" else group.asks
    columns = _labels(views[0].panels[0].columns, pooled[0].panels[0].columns, keys)
    heads = []
    for layer, (view, small) in enumerate(zip(views, pooled, strict=True)):
        values = np.stack([panel.values for panel in small.panels]).astype(dtype)
        for number, place in enumerate(_slices(numbers.add(values), values)):
            name = f"layer {layer} · head {number}"
            head = _head(name, f"{group.title.removeprefix('The ')}, {name}", place, view.panels[number].values)
            heads.append(_summarized(head, rows, columns, values[number].astype(np.float64)))
    same = views[0].panels[0].values.shape == pooled[0].panels[0].values.shape
    titles = Titles(heads[0].title, views[0].row_axis, views[0].column_axis)
    first = pooled[0].panels[0].values.astype(dtype).astype(np.float64)
    sheet = written(titles, rows, columns, first, "weights", heads[0].numbers, totals=same)
    note, across = _note(views, pooled, dtype), _across(len(views[0].panels))
    return Gallery(f"{group.stack}-{group.kind}", group.title, tuple(heads), sheet, note, across)


def _note(views: list[View], pooled: list[View], dtype: type[np.floating]) -> str:
    parts = []
    if views[0] is not pooled[0]:
        high, wide = views[0].panels[0].values.shape
        parts.append(
            f"These matrices have {high} × {wide} cells and more than {LARGEST} do not fit: each cell here is the "
            "maximum of those it stands for, so no peak is lost, but rows no longer sum to 1."
        )
    if dtype is np.float16:
        parts.append("To keep the page small their numbers are written in float16: three digits hold.")
    return " ".join(parts)


def _across(heads: int) -> int:
    """Number of pictures in a line, so that all lines are nearly equal."""
    return -(-heads // -(-heads // 8))


def _labels(every: list[str], pooled: list[str], side: str) -> list[Label]:
    span = -(-len(every) // LARGEST)
    return [
        Label(visible(text), side, place * span, min(span, len(every) - place * span))
        for place, text in enumerate(pooled)
    ]


def _head(name: str, title: str, place: Slice, weights: NDArray[np.float64]) -> Head:
    queries, keys = np.indices(weights.shape)
    distance = float((weights * np.abs(queries - keys)).sum(-1).mean())
    return Head(name, title, place, entropy(weights), distance, "")


def _summarized(head: Head, rows: Sequence[Label], columns: Sequence[Label], values: NDArray[np.float64]) -> Head:
    summary = summary_of(rows, columns, values, "weights")
    return Head(head.name, head.title, head.numbers, head.entropy, head.distance, summary)


def _slices(key: str, values: NDArray[np.floating]) -> list[Slice]:
    return [Slice(key, number * values[0].size) for number in range(len(values))]
