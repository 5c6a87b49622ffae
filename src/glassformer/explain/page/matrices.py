"""Matrices of attention: a small picture a head, one of them large, and all of a model's in three groups."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from glassformer.explain.analysis.attention_measures import distance, entropy
from glassformer.explain.example import Example
from glassformer.explain.figures import attention
from glassformer.explain.figures.view import View
from glassformer.explain.matrix import LARGEST, Matrix
from glassformer.explain.page.sheets import Numbers, Sheet, Slice, sheet_of, summary_of
from glassformer.explain.walkthrough.step import TracedMatrix

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
    matrix: Matrix
    numbers: Slice
    entropy: float
    distance: float

    @property
    def summary(self) -> str:
        return summary_of(self.matrix)


@dataclass(frozen=True)
class Gallery:
    """``sheet`` is the first head's, with its numbers; the page puts another's in its place."""

    title: str
    heads: tuple[Head, ...]
    sheet: Sheet
    note: str = ""
    across: int = 8
    """Number of pictures in a line: the heads of a layer."""

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.sheet.matrix.rows), len(self.sheet.matrix.columns)


def gallery_of(tables: Sequence[TracedMatrix], numbers: Numbers) -> Gallery:
    """Gallery of one attention: a table of weights for each head."""
    first, chosen = tables[0], [dict(table.fixed)["head"] for table in tables]
    every = first.trace[first.name][0].double().cpu().numpy()
    names = [f"head {number}" for number in chosen]
    heads = _heads(names, tables, [every[number] for number in chosen], numbers, np.float32)
    return _gallery("Every head of this attention", heads, len(heads), first.has_every_column)


def galleries_of(example: Example, numbers: Numbers) -> list[Gallery]:
    """Every layer and head of the model."""
    groups: dict[tuple[str, str], list[View]] = {}
    for name, path in attention.attention_views(example).items():
        if name.rpartition(".")[2] in ("self_attention", "cross_attention"):
            groups.setdefault((path.split(".")[0], path.rpartition(".")[2]), []).append(attention.view(example, name))
    order = sorted(groups, key=lambda group: list(TITLES).index(group))
    pooled = {group: [view.pooled() for view in groups[group]] for group in order}
    size = sum(4 * matrix.values.size for found in pooled.values() for view in found for matrix in view.matrices)
    dtype = np.float32 if size <= MAX_BYTES else np.float16
    titles = {group: TITLES[group] if example.translated else OF_ONE_STACK for group in order}
    return [_gallery_of_views(titles[group], groups[group], pooled[group], numbers, dtype) for group in order]


def _gallery_of_views(
    title: str, views: list[View], pooled: list[View], numbers: Numbers, dtype: type[np.floating]
) -> Gallery:
    heads = []
    for layer, (view, small) in enumerate(zip(views, pooled, strict=True)):
        names = [f"layer {layer} · head {number}" for number in range(len(view.matrices))]
        titles = [f"{title.removeprefix('The ')}, {name}" for name in names]
        matrices = [replace(matrix, title=text) for matrix, text in zip(small.matrices, titles, strict=True)]
        heads += _heads(names, matrices, [matrix.values for matrix in view.matrices], numbers, dtype)
    return _gallery(title, heads, len(views[0].matrices), views[0] is pooled[0], _note(views, pooled, dtype))


def _gallery(title: str, heads: Sequence[Head], in_a_layer: int, sums: bool, note: str = "") -> Gallery:
    sheet = sheet_of(heads[0].matrix, heads[0].numbers, sums)
    return Gallery(title, tuple(heads), sheet, note, _across(in_a_layer))


def _heads(
    names: Sequence[str],
    matrices: Sequence[Matrix],
    weights: Sequence[NDArray[np.float64]],
    numbers: Numbers,
    dtype: type[np.floating],
) -> list[Head]:
    """``matrices`` may be pooled and are stored in ``dtype``; ``weights`` are those of each head without pooling."""
    values = np.array([matrix.values for matrix in matrices], dtype=dtype)
    key, size = numbers.add(values), values[0].size
    heads = []
    for number, (name, matrix, every) in enumerate(zip(names, matrices, weights, strict=True)):
        stored = replace(matrix, values=values[number].astype(np.float64))
        heads.append(Head(name, stored, Slice(key, number * size), entropy(every), distance(every)))
    return heads


def _note(views: list[View], pooled: list[View], dtype: type[np.floating]) -> str:
    parts = []
    if views[0] is not pooled[0]:
        high, wide = views[0].matrices[0].values.shape
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
