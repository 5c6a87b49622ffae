"""A picture as plain data: titles, labels and numbers. How it is written down, as a file of any kind, starts here."""

import csv
import io
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from glassformer.errors import ConfigError
from glassformer.explain.figures import svg
from glassformer.explain.figures.panels import Panels

DRAWN = (".pdf", ".png")  # by matplotlib
SUFFIXES = (".csv", ".pdf", ".png", ".svg", ".tex")

_LATEX = str.maketrans(
    {
        **{sign: "\\" + sign for sign in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "…": r"\ldots{}",
        "·": r"$\cdot$",
    }
)


@dataclass(frozen=True, eq=False)
class View(Panels):
    """Panels that can be saved: as a picture, every number, or a table."""

    def to_csv(self) -> str:
        """A line a number, in full, with the places and the tokens that it belongs to."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["panel", "row", "row_label", "column", "column_label", "value"])
        for panel in self.panels:
            for i, row in enumerate(panel.rows):
                for j, column in enumerate(panel.columns):
                    writer.writerow([panel.title, i, row, j, column, repr(float(panel.values[i, j]))])
        return text.getvalue()

    def to_latex(self) -> str:
        """A ``tabular`` a panel, of the kernel's own commands; scripts that Latin fonts lack need XeLaTeX."""
        view = self.pooled()
        parts = []
        for panel in view.panels:
            title = ", ".join(part for part in (view.title, panel.title) if part)
            parts += [
                r"\begin{table}",
                rf"\caption{{{_latex(title)}. Rows: {_latex(view.row_axis)}; "
                rf"columns: {_latex(view.column_axis)}; values: {_latex(view.value_axis)}.}}",
                rf"\begin{{tabular}}{{l{'r' * len(panel.columns)}}}",
                "".join(f" & {_typed(column)}" for column in panel.columns) + r" \\ \hline",
            ]
            for row, values in zip(panel.rows, panel.values, strict=True):
                parts.append(_typed(row) + "".join(f" & {value:.2f}" for value in values) + r" \\")
            parts += [r"\end{tabular}", r"\end{table}", ""]
        return "\n".join(parts)

    def svg(self) -> str:
        """A picture that needs nothing but itself, legible on light and on dark."""
        return svg.svg(self.pooled())

    def _repr_html_(self) -> str:
        return self.svg()

    def save(self, path: str | Path) -> None:
        """By its suffix: .svg .png .pdf a picture, .csv every number, .tex a table."""
        path = Path(path)
        suffix = known_suffix(path)
        if suffix in DRAWN:
            path.write_bytes(self._drawn(suffix.removeprefix(".")))
        else:
            text = {".csv": self.to_csv, ".tex": self.to_latex, ".svg": self.svg}[suffix]()
            path.write_text(text, encoding="utf-8", newline="\n")

    def _drawn(self, kind: str) -> bytes:
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
        drawn: bytes = drawing.draw(self.pooled(), kind)
        return drawn


def known_suffix(path: str | Path) -> str:
    """The suffix of ``path`` in small letters; a ``ConfigError`` names the known ones when it is none of them."""
    suffix = Path(path).suffix.lower()
    if not suffix:
        raise ConfigError(f"{path}: no suffix says what kind of figure it is; end it in one of {' '.join(SUFFIXES)}")
    if suffix not in SUFFIXES:
        raise ConfigError(f"{path}: {suffix} is no kind of figure; known: {' '.join(SUFFIXES)}")
    return suffix


def _latex(text: str) -> str:
    return text.translate(_LATEX)


def _typed(token: str) -> str:
    return rf"\texttt{{{_latex(svg.visible(token))}}}"
