"""A view: matrices with the same axes and colors, drawn side by side, and its files.

A file is a picture, every number, or a table, by the suffix of its name.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Self

from glassformer.errors import ConfigError
from glassformer.explain.figures.svg import svg
from glassformer.explain.matrix import LARGEST, Axis, Label, Matrix, Scale
from glassformer.explain.trace import Trace
from glassformer.text.decimals import aligned


@dataclass(frozen=True, eq=False)
class View:
    """Matrices whose axes have the same titles, and whose numbers have the same scale.

    The titles of the axes name queries and keys if the matrices are attention. The numbers are exact and complete.
    Pictures and tables of more than ``largest`` rows or columns are pooled, and their title says so.
    """

    name: str
    title: str
    matrices: list[Matrix]
    largest: int = LARGEST
    """Largest number of rows or columns that pictures and tables show without pooling."""

    @property
    def row_axis(self) -> str:
        """Title of the rows."""
        return self.matrices[0].rows.title

    @property
    def column_axis(self) -> str:
        """Title of the columns."""
        return self.matrices[0].columns.title

    @property
    def scale(self) -> Scale:
        """Meaning and colors of the numbers."""
        return self.matrices[0].scale

    def pooled(self) -> Self:
        """At most ``largest`` rows and columns a matrix, each number the maximum of those it stands for; the title
        says so. Without larger matrices the same object."""
        shape = [max(matrix.values.shape[axis] for matrix in self.matrices) for axis in (0, 1)]
        rows, columns = (-(-length // self.largest) for length in shape)
        if rows == columns == 1:
            return self
        cells = "{} × {} pooled by max, {} × {} to a cell".format(*shape, rows, columns)
        matrices = [matrix.pooled(rows, columns) for matrix in self.matrices]
        return replace(self, title=f"{self.title} · {cells}", matrices=matrices)

    def _repr_html_(self) -> str:
        return view_as_svg(self)


def view_tensor(trace: Trace, name: str, **index: int) -> View:
    """A view of what is left of a recorded tensor: a matrix, or one for each entry of the axis in front of it.

    Rows and columns are numbered; ``view`` draws the attention of an example with its tokens.
    """
    if "batch" in trace.axes(name):
        index = {"batch": 0, **index}
    sizes = zip(trace.axes(name), trace[name].shape, strict=True)
    axes = [axis for axis, size in sizes if axis not in index and size > 1]
    values = trace.at(name, **index).double().cpu()
    while values.ndim < 2:
        values, axes = values[None], ["", *axes]
    if values.ndim > 3:
        raise ConfigError(f"{name} has the axes {', '.join(axes)}; fix one of them, as in {axes[0]}=0")
    slices = values[None] if values.ndim == 2 else values
    titles = [""] if values.ndim == 2 else [f"{axes[0]} {number}" for number in range(len(slices))]
    rows, columns = (Axis.of(axis, map(str, range(size))) for axis, size in zip(axes[-2:], slices.shape[1:]))
    finite = values[values.isfinite()]
    low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 1.0)
    scale = Scale(name.rpartition(".")[2].replace("_", " "), min(low, 0.0), high if high > low else low + 1)
    return View(name, name, [Matrix(m.numpy(), rows, columns, t, scale) for t, m in zip(titles, slices, strict=True)])


DRAWN = (".pdf", ".png")  # by matplotlib
SUFFIXES = (".csv", ".pdf", ".png", ".svg", ".tex")

LATEX = {
    **{sign: "\\" + sign for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "…": r"\ldots{}",
    "·": r"$\cdot$",
    "−": "$-$",
    "∞": r"$\infty$",
    "√": r"$\surd$",
}
"""Characters that LaTeX reads otherwise, or that its fonts lack, and what to write instead."""


def save_view(view: View, path: str | Path) -> None:
    """Write a view by the suffix of ``path``: .svg .png .pdf a picture, .csv every number, .tex a table."""
    path = Path(path)
    suffix = known_suffix(path)
    if suffix in DRAWN:
        path.write_bytes(_drawn(view, suffix.removeprefix(".")))
    else:
        text = {".csv": view_as_csv, ".tex": view_as_latex, ".svg": view_as_svg}[suffix](view)
        path.write_text(text, encoding="utf-8", newline="\n")


def view_as_csv(view: View) -> str:
    """A line for each number, in full, with its indices and labels."""
    return "".join(csv_rows(view))


def csv_rows(view: View, written: Callable[[str], str] = str) -> Iterator[str]:
    """The heading of the CSV, then its lines, one row of a matrix at a time. ``written`` writes titles and labels."""
    yield csv_text([["panel", "row", "row_label", "column", "column_label", "value"]])
    for matrix in view.matrices:
        title, columns = written(matrix.title), list(map(written, matrix.columns.texts))
        for i, (row, label) in enumerate(zip(matrix.values.tolist(), matrix.rows.texts, strict=True)):
            start = [title, i, written(label)]
            yield csv_text([*start, j, columns[j], repr(value)] for j, value in enumerate(row))


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Lines of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def view_as_latex(view: View) -> str:
    """A ``tabular`` for each matrix, of the kernel's own commands; scripts that Latin fonts lack need XeLaTeX."""
    view = view.pooled()
    parts = []
    for matrix in view.matrices:
        title = ", ".join(part for part in (view.title, matrix.title) if part)
        parts += [
            r"\begin{table}",
            rf"\caption{{{latex_text(title)}. Rows: {latex_text(view.row_axis)}; "
            rf"columns: {latex_text(view.column_axis)}; values: {latex_text(view.scale.title)}.}}",
            rf"\begin{{tabular}}{{l{'r' * len(matrix.columns)}}}",
            "".join(f" & {_typed(label)}" for label in matrix.columns.labels) + r" \\ \hline",
        ]
        for label, values in zip(matrix.rows.labels, matrix.values, strict=True):
            parts.append(_typed(label) + "".join(f" & {latex_text(aligned(value, 2))}" for value in values) + r" \\")
        parts += [r"\end{tabular}", r"\end{table}", ""]
    return "\n".join(parts)


def view_as_svg(view: View, adaptive: bool = True) -> str:
    """A picture without references to other files; ``adaptive`` is on dark paper where the reader's page is dark."""
    view = view.pooled()
    return svg(view.title, view.matrices, adaptive)


def known_suffix(path: str | Path) -> str:
    """The suffix of ``path`` in small letters; a ``ConfigError`` names the known ones when it is none of them."""
    suffix = Path(path).suffix.lower()
    if not suffix:
        raise ConfigError(f"{path}: no suffix says what kind of figure it is; end it in one of {' '.join(SUFFIXES)}")
    if suffix not in SUFFIXES:
        raise ConfigError(f"{path}: {suffix} is no kind of figure; known: {' '.join(SUFFIXES)}")
    return suffix


def _drawn(view: View, kind: str) -> bytes:
    """By matplotlib, which is imported only here: it is optional, and takes a second to start."""
    try:
        drawing = import_module("glassformer.explain.figures.matplotlib")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "matplotlib":
            raise
        raise ConfigError(
            f".{kind} files are drawn by matplotlib, which is not installed; "
            "pip install 'glassformer[plot]', or name a .svg file"
        ) from None
    view = view.pooled()
    drawn: bytes = drawing.draw(view.title, view.matrices, kind)
    return drawn


def latex_text(text: str) -> str:
    """``text`` with the characters escaped that LaTeX reads otherwise."""
    return "".join(LATEX.get(sign, sign) for sign in text)


def _typed(label: Label) -> str:
    return rf"\texttt{{{latex_text(label.visible)}}}"
