"""Formats of exported panels, and the files that they write.

Texts come from sentences and tokenizers. A spreadsheet must not run one as a formula, and LaTeX and SVG must not read
one as markup; each writer here takes care of its own format. Names of files are letters, digits and ``._-``.
"""

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from jinja2 import Environment

from glassformer.errors import DataError
from glassformer.explain.figures.view import View, csv_rows, csv_text, latex_text, view_as_latex, view_as_svg
from glassformer.explain.matrix import visible
from glassformer.explain.report import report
from glassformer.text.decimals import precise
from glassformer.web.explorer.exports.content import ExportContent, ExportTable
from glassformer.web.explorer.exports.drawings import standalone
from glassformer.web.explorer.exports.script import write_script
from glassformer.web.explorer.traced import TracedSelection

MAX_CSV_NUMBERS = 2_000_000
"""Numbers of a CSV file; 512 × 512 in seven heads are fewer."""
MAX_TENSOR_BYTES = 1 << 28
"""Bytes of the tensors of an npz file, which is made in memory."""
MAX_LATEX_ROWS = 200
"""Rows of a table in LaTeX; a matrix is pooled, as its picture is."""
FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")
"""First characters by which a spreadsheet takes a text for a formula (CWE-1236)."""


@dataclass(frozen=True)
class ExportRequest:
    """A panel to write: its content, the view that it belongs to, and the templates of drawings."""

    content: ExportContent
    traced: TracedSelection
    templates: Environment


class ExportFormat(NamedTuple):
    """``text`` is true for what can be copied to the clipboard."""

    label: str
    suffix: str
    media_type: str
    text: bool
    write: Callable[[ExportRequest], Iterable[str | bytes]]


class ExportedFile(NamedTuple):
    """A file that is sent: its name, its type, and its bytes in pieces."""

    name: str
    media_type: str
    pieces: Iterator[bytes]


def file_name(run: str, checkpoint: str, content: ExportContent, suffix: str) -> str:
    """``demo-step_00000400-decoder.layers.1.cross_attention.weights.head1.csv``"""
    parts = (re.sub(r"[^A-Za-z0-9._-]+", "_", part).strip("._-")[:100] for part in (run, checkpoint, content.name))
    return "-".join(part for part in parts if part) + suffix


def harmless(text: str) -> str:
    """``text`` as a cell of a spreadsheet: an apostrophe stands before one that would be read as a formula."""
    return f"'{text}" if text.lstrip(" ").startswith(FORMULA_SIGNS) else text


def _svg(request: ExportRequest) -> Iterable[str]:
    content = request.content
    if content.drawing is not None:
        return [standalone(content.drawing, content.title, request.templates)]
    return [view_as_svg(content.picture or _view(content, "picture"), adaptive=False)]


def _csv(request: ExportRequest) -> Iterable[str]:
    numbers = request.content.numbers
    if isinstance(numbers, ExportTable):
        cells = (tuple(harmless(one) if isinstance(one, str) else one for one in row) for row in numbers.rows)
        return [csv_text([numbers.headings, *cells])]
    view = _view(request.content, "table")
    count = sum(matrix.values.size for matrix in view.matrices)
    if count > MAX_CSV_NUMBERS:
        raise DataError(f"the tensor has {count:,} numbers; a CSV file has at most {MAX_CSV_NUMBERS:,}: choose npz")
    return csv_rows(view, harmless)


def _latex(request: ExportRequest) -> Iterable[str]:
    content = request.content
    if content.formula is not None:
        return [f"% {content.formula.title}; needs amsmath\n\\[\n{content.formula.latex()}\n\\]\n"]
    table = content.listed or content.numbers
    if isinstance(table, ExportTable):
        return _latex_table(content.title, table)
    return [view_as_latex(_view(content, "table"))]


def _latex_table(title: str, table: ExportTable) -> Iterator[str]:
    rest = len(table.rows) - MAX_LATEX_ROWS
    cut = f", the first {MAX_LATEX_ROWS} of {len(table.rows):,} rows" if rest > 0 else ""
    columns = "".join("l" if isinstance(one, str) else "r" for one in table.rows[0]) if table.rows else "l"
    yield f"\\begin{{table}}\n\\caption{{{latex_text(title + cut)}.}}\n\\begin{{tabular}}{{{columns}}}\n"
    yield " & ".join(latex_text(heading.replace("_", " ")) for heading in table.headings) + " \\\\ \\hline\n"
    for row in table.rows[:MAX_LATEX_ROWS]:
        yield " & ".join(map(_latex_cell, row)) + " \\\\\n"
    yield "\\end{tabular}\n\\end{table}\n"


def _latex_cell(cell: str | int | float) -> str:
    if isinstance(cell, str):
        return latex_text(visible(cell)) if cell else ""
    return latex_text(precise(cell) if isinstance(cell, float) else f"{cell}".replace("-", "−"))


def _npz(request: ExportRequest) -> Iterable[bytes]:
    arrays = request.content.arrays
    size = sum(array.values.nbytes for array in arrays.values())
    if size > MAX_TENSOR_BYTES:
        raise DataError(
            f"the tensors of this view have {size >> 20:,} MiB; one file has at most {MAX_TENSOR_BYTES >> 20} MiB: "
            "export a single tensor"
        )
    axes = json.dumps({name: array.axes for name, array in arrays.items()})
    selection = json.dumps(asdict(request.traced.selection))
    file = io.BytesIO()
    values = {name: array.values for name, array in arrays.items()}
    np.savez(file, axes=np.array(axes), selection=np.array(selection), **values)  # type: ignore[arg-type]
    return _pieces(file)


def _pieces(file: io.BytesIO) -> Iterator[bytes]:
    file.seek(0)
    while piece := file.read(1 << 20):
        yield piece


def _python(request: ExportRequest) -> Iterable[str]:
    return [write_script(request.traced, request.content)]


def _html(request: ExportRequest) -> Iterable[str]:
    found = request.traced.interventions
    titles = "; ".join(one.title for one in found)
    notes = [f"Interventions: {titles}. They replace numbers, to which the formula does not apply."] if found else []
    return [report(request.traced.example, notes)]


def _view(content: ExportContent, what: str) -> View:
    if not isinstance(content.numbers, View):
        raise DataError(f"this panel has no {what}; choose another format")
    return content.numbers


FORMATS: dict[str, ExportFormat] = {
    "svg": ExportFormat("SVG", ".svg", "image/svg+xml", False, _svg),
    "csv": ExportFormat("CSV", ".csv", "text/csv", True, _csv),
    "tex": ExportFormat("LaTeX", ".tex", "text/x-tex", True, _latex),
    "npz": ExportFormat("npz", ".npz", "application/zip", False, _npz),
    "py": ExportFormat("Python", ".py", "text/x-python", True, _python),
    "html": ExportFormat("HTML", ".html", "text/html", False, _html),
}
"""Formats that the server writes. The page itself draws a PNG from the SVG."""


def write_export(request: ExportRequest, run: str, name: str) -> ExportedFile:
    """A file in the format ``name``. What cannot be written raises ``DataError`` here, before its first byte."""
    one = FORMATS[name]
    pieces = iter(one.write(request))
    first = next(pieces, "")
    encoded = (_encoded(piece) for piece in chain([first], pieces))
    return ExportedFile(
        file_name(run, request.traced.checkpoint.name, request.content, one.suffix), one.media_type, encoded
    )


def _encoded(piece: str | bytes) -> bytes:
    return piece if isinstance(piece, bytes) else piece.encode("utf-8", "replace")
