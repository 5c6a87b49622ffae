"""Content of an exported panel: numbers with their labels, tensors, a drawing, a formula and Python lines."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassformer.explain.example import Example
from glassformer.explain.figures.view import View
from glassformer.explain.formula.formula import Formula
from glassformer.explain.trace import as_array
from glassformer.web.explorer.selection import Selection
from glassformer.web.explorer.session import Session
from glassformer.web.explorer.traced import TracedSelection

PICTURES = ("svg", "png")
TENSORS = ("npz", "py")
EVERY_FORMAT = (*PICTURES, "csv", "tex", *TENSORS)


@dataclass(frozen=True)
class ExportTable:
    """Rows of texts and numbers, for panels that show no matrix."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str | int | float, ...], ...]


class NamedArray(NamedTuple):
    """Numbers with the names of their axes."""

    values: NDArray[Any]
    axes: tuple[str, ...]


class PanelDrawing(NamedTuple):
    """A template that writes an ``<svg>``, its values, and the classes of the elements around it on the page."""

    template: str
    values: Mapping[str, Any]
    classes: str = ""


@dataclass(frozen=True, kw_only=True)
class ExportContent:
    """Everything that the files of one panel are written from.

    ``name`` is a part of their names: a tensor, with its head and place. ``code`` are the lines that follow the trace
    in the script; they end with ``values``.
    """

    name: str
    title: str
    numbers: View | ExportTable | None = None
    listed: ExportTable | None = None
    """Rows for LaTeX, if all numbers are too many for a page."""
    drawing: PanelDrawing | None = None
    """The picture, if it is not that of the numbers."""
    picture: View | None = None
    """Matrices that the picture shows, if they are not the numbers."""
    arrays: Mapping[str, NamedArray] = field(default_factory=dict)
    formula: Formula | None = None
    imports: tuple[str, ...] = ()
    code: tuple[str, ...] = ()


class PanelExport(NamedTuple):
    """Export of one panel: what its menu calls it, its formats, and its content, which is made for a request only."""

    title: Callable[[Example, Selection], str]
    formats: tuple[str, ...]
    content: Callable[[Session, TracedSelection], ExportContent]


def fixed_export(
    title: str, formats: tuple[str, ...], content: Callable[[Session, TracedSelection], ExportContent]
) -> PanelExport:
    """The export of a panel that the menu always calls by the same ``title``."""
    return PanelExport(lambda example, selection: title, formats, content)


def arrays_of(example: Example, names: Iterable[str]) -> dict[str, NamedArray]:
    """Recorded tensors at their full size."""
    return {name: NamedArray(as_array(example.trace[name]), example.trace.axes(name)) for name in names}


def columns_of(rows: Sequence[Sequence[float]], names: Sequence[str]) -> dict[str, NamedArray]:
    """The columns of a table of numbers, each as a vector."""
    columns = zip(*rows, strict=True)
    return {name: NamedArray(np.array(values), ("row",)) for name, values in zip(names, columns, strict=True)}
