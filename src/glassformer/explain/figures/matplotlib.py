"""Pictures for paper, by matplotlib, which is optional: ``View.save`` imports this module, nothing else does.

No pyplot, so no global state and no window; no date in the file, so the same view is the same bytes.
"""

import io
from functools import cache
from typing import Any
from unicodedata import normalize

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.ft2font import FT2Font

from glassformer.explain.decimals import compact
from glassformer.explain.figures.panels import Panel, Panels
from glassformer.explain.figures.svg import columns_of, ink, label, lines_of, place, reduced

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


def draw(view: Panels, kind: str) -> bytes:
    """The file: ``pdf`` and ``svg`` as lines and letters, ``png`` at 200 dots an inch."""
    with matplotlib.rc_context({**_SETTINGS, "font.family": _fonts()[0]}):
        figure = _figure(view)
        FigureCanvasAgg(figure)
        file = io.BytesIO()
        figure.savefig(file, format=kind, dpi=200, metadata=_METADATA[kind])
    return file.getvalue()


def _figure(view: Panels) -> Figure:
    panels = view.panels
    columns, rows = (max(len(side) for side in sides) for sides in zip(*[(p.columns, p.rows) for p in panels]))
    high, wide = (
        CHARACTER * max(columns_of(_letters(label(token))) for p in panels for token in getattr(p, side))
        for side in ("columns", "rows")
    )
    cell = max(PITCH, min((WIDTH - 1.2 if len(panels) == 1 else 1.4) / columns, 0.42))
    width, height = cell * columns + wide + 0.15, max(PITCH, min(cell, 0.24)) * rows + high + 0.35
    lines, per_line = lines_of(len(panels), int((WIDTH - 0.9) / width))
    title = _wrapped(view.title, max(3.4, width * per_line + 1.0))
    figure = Figure(
        figsize=(max(3.4, width * per_line + 1.0), height * lines + 0.5 + 0.15 * title.count("\n")),
        layout="constrained",
    )
    grid = figure.subplots(lines, per_line, squeeze=False)
    for index, axes in enumerate(grid.flat):
        if index < len(panels):
            image = _panel(view, panels[index], axes, cell)
        else:
            axes.set_visible(False)
    figure.suptitle(title, fontsize=9)
    figure.supxlabel(view.column_axis, fontsize=8)
    figure.supylabel(view.row_axis, fontsize=8)
    bar = figure.colorbar(image, ax=grid, label=view.value_axis, shrink=0.9 if height * lines < 3 else 0.5, aspect=18)
    bar.outline.set_visible(False)
    return figure


def _panel(view: Panels, panel: Panel, axes: Any, cell: float) -> Any:
    """One matrix with its labels, and its numbers where they have room."""
    image = axes.imshow(panel.values, vmin=view.low, vmax=max(view.high, view.low + 1e-9), aspect="auto")
    axes.set_title(_letters(panel.title))
    columns = [_letters(label(token)) for token in panel.columns]
    turned = max(map(columns_of, columns)) * CHARACTER > cell
    size = 7 if cell >= 0.14 else 6
    axes.set_xticks(range(len(columns)), columns, rotation=90 if turned else 0, fontsize=size)
    axes.set_yticks(range(len(panel.rows)), [_letters(label(token)) for token in panel.rows], fontsize=size)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if panel.picture is not None:
        over = (-0.5, len(panel.columns) - 0.5, len(panel.rows) - 0.5, -0.5)
        axes.imshow(reduced(panel.picture), extent=over, alpha=0.45, aspect="auto", interpolation="nearest")
        return image
    texts = [[compact(float(value)) for value in row] for row in panel.values]
    if cell >= 0.062 * max(len(text) for row in texts for text in row):
        for i, row in enumerate(texts):
            for j, text in enumerate(row):
                color = ink(place(float(panel.values[i, j]), view.low, view.high))
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
