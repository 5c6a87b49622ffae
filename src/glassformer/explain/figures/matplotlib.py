"""Pictures for paper, by matplotlib, which is optional: ``save_view`` imports this module, nothing else does.

No pyplot, so no global state and no window; no date in the file, so the same view is the same bytes.
"""

import io
from collections.abc import Sequence
from functools import cache
from typing import Any
from unicodedata import normalize

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.ft2font import FT2Font

from glassformer.explain.figures.svg import extent, ink, lines_of, reduced
from glassformer.explain.matrix import Matrix, columns_of
from glassformer.text.decimals import compact

PITCH = 0.115  # inches of a row or column at the least: labels of 6 points do not touch
CHARACTER = 0.06  # inches of one, in 7 points
WIDTH = 6.9  # inches of a page between its margins

# The first comes with matplotlib; of the others, those that are installed are used for what it lacks.
_FONTS = ["DejaVu Sans", "Noto Sans CJK JP", "Noto Sans Arabic", "Noto Sans Hebrew", "Noto Emoji"]
_SETTINGS: dict[Any, Any] = {
    "font.size": 7,
    "axes.titlesize": 8,
    "text.parse_math": False,
    "text.usetex": False,
    "pdf.fonttype": 42,
    "svg.hashsalt": "glassformer",
    "image.cmap": "cividis",
}
_METADATA: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}


def draw(title: str, matrices: Sequence[Matrix], kind: str) -> bytes:
    """The file: ``pdf`` and ``svg`` as lines and letters, ``png`` at 200 dots an inch."""
    with matplotlib.rc_context({**_SETTINGS, "font.family": _fonts()[0]}):
        figure = _figure(title, matrices)
        FigureCanvasAgg(figure)
        file = io.BytesIO()
        figure.savefig(file, format=kind, dpi=200, metadata=_METADATA[kind])
    return file.getvalue()


def _figure(title: str, matrices: Sequence[Matrix]) -> Figure:
    (rows, columns), (longest_row, longest_column) = extent(matrices, _letters)
    wide, high = CHARACTER * longest_row, CHARACTER * longest_column
    cell = max(PITCH, min((WIDTH - 1.2 if len(matrices) == 1 else 1.4) / columns, 0.42))
    width, height = cell * columns + wide + 0.15, max(PITCH, min(cell, 0.24)) * rows + high + 0.35
    lines, per_line = lines_of(len(matrices), int((WIDTH - 0.9) / width))
    title = _wrapped(title, max(3.4, width * per_line + 1.0))
    figure = Figure(
        figsize=(max(3.4, width * per_line + 1.0), height * lines + 0.5 + 0.15 * title.count("\n")),
        layout="constrained",
    )
    grid = figure.subplots(lines, per_line, squeeze=False)
    for index, axes in enumerate(grid.flat):
        if index < len(matrices):
            image = _panel(matrices[index], axes, cell)
        else:
            axes.set_visible(False)
    figure.suptitle(title, fontsize=9)
    figure.supxlabel(matrices[0].columns.title, fontsize=8)
    figure.supylabel(matrices[0].rows.title, fontsize=8)
    bar = figure.colorbar(
        image, ax=grid, label=matrices[0].scale.title, shrink=0.9 if height * lines < 3 else 0.5, aspect=18
    )
    bar.outline.set_visible(False)
    return figure


def _panel(matrix: Matrix, axes: Any, cell: float) -> Any:
    """One matrix with its labels, and its numbers where they have room."""
    scale = matrix.scale
    image = axes.imshow(matrix.values, vmin=scale.low, vmax=max(scale.high, scale.low + 1e-9), aspect="auto")
    axes.set_title(_letters(matrix.title))
    columns = [_letters(label.short) for label in matrix.columns.labels]
    turned = max(map(columns_of, columns)) * CHARACTER > cell
    size = 7 if cell >= 0.14 else 6
    axes.set_xticks(range(len(columns)), columns, rotation=90 if turned else 0, fontsize=size)
    axes.set_yticks(range(len(matrix.rows)), [_letters(label.short) for label in matrix.rows.labels], fontsize=size)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if matrix.picture is not None:
        over = (-0.5, len(matrix.columns) - 0.5, len(matrix.rows) - 0.5, -0.5)
        axes.imshow(reduced(matrix.picture), extent=over, alpha=0.45, aspect="auto", interpolation="nearest")
        return image
    texts = [[compact(float(value)) for value in row] for row in matrix.values]
    if cell >= 0.062 * max(len(text) for row in texts for text in row):
        for i, row in enumerate(texts):
            for j, text in enumerate(row):
                color = ink(scale.fraction(float(matrix.values[i, j])))
                axes.text(j, i, text, ha="center", va="center", color=color, fontsize=6)
    return image


def _wrapped(text: str, inches: float) -> str:
    """A title that is wider than its figure goes on below."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and (len(lines[-1]) + len(word) + 1) * 0.073 > inches:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def _letters(text: str) -> str:
    """``text`` with the signs that no font at hand can draw as their equivalents or numbers, never as empty boxes."""
    return "".join(map(_letter, text))


def _letter(sign: str) -> str:
    if ord(sign) in _fonts()[1]:
        return sign
    plain = normalize("NFKC", sign)
    return plain if all(ord(part) in _fonts()[1] for part in plain) else f"[U+{ord(sign):04X}]"


@cache
def _fonts() -> tuple[list[str], frozenset[int]]:
    """The fonts that are at hand, and every sign that one of them has."""
    names = [name for name in _FONTS if name in {entry.name for entry in fontManager.ttflist}]
    files = [fontManager.findfont(name) for name in names]
    return names, frozenset(code for file in files for code in FT2Font(file).get_charmap())
