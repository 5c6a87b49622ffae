"""Files of a view: a picture, every number, or a table, by the suffix of their name."""

import csv
import io
from importlib import import_module
from pathlib import Path

from glassformer.errors import ConfigError
from glassformer.explain.figures.svg import svg
from glassformer.explain.figures.view import View
from glassformer.explain.matrix import Label
from glassformer.text.decimals import aligned

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
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["panel", "row", "row_label", "column", "column_label", "value"])
    for matrix in view.matrices:
        for i, row in enumerate(matrix.rows.texts):
            for j, column in enumerate(matrix.columns.texts):
                writer.writerow([matrix.title, i, row, j, column, repr(float(matrix.values[i, j]))])
    return text.getvalue()


def view_as_latex(view: View) -> str:
    """A ``tabular`` for each matrix, of the kernel's own commands; scripts that Latin fonts lack need XeLaTeX."""
    view = view.pooled()
    parts = []
    for matrix in view.matrices:
        title = ", ".join(part for part in (view.title, matrix.title) if part)
        parts += [
            r"\begin{table}",
            rf"\caption{{{_latex(title)}. Rows: {_latex(view.row_axis)}; "
            rf"columns: {_latex(view.column_axis)}; values: {_latex(view.scale.title)}.}}",
            rf"\begin{{tabular}}{{l{'r' * len(matrix.columns)}}}",
            "".join(f" & {_typed(label)}" for label in matrix.columns.labels) + r" \\ \hline",
        ]
        for label, values in zip(matrix.rows.labels, matrix.values, strict=True):
            parts.append(_typed(label) + "".join(f" & {_latex(aligned(value, 2))}" for value in values) + r" \\")
        parts += [r"\end{tabular}", r"\end{table}", ""]
    return "\n".join(parts)


def view_as_svg(view: View) -> str:
    """A picture without references to other files, legible on light and on dark."""
    view = view.pooled()
    return svg(view.title, view.matrices)


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


def _latex(text: str) -> str:
    return "".join(LATEX.get(sign, sign) for sign in text)


def _typed(label: Label) -> str:
    return rf"\texttt{{{_latex(label.visible)}}}"
