"""Matrices as SVG: numbers on a shade that follows them, legible without color and on light and dark paper."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from glassformer.explain.matrix import Matrix, Scale, columns_of
from glassformer.text.decimals import compact

# Samples of cividis (Nuñez, Anderton & Renslow 2018), a palette that color-blind readers see as everybody does.
CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"]
SHADES = 64
CHARACTER = 7.3  # width of one, at the size of labels
LINE = 1400  # width of a line of panels
MAX_PIXELS = 64
"""Pixels a side; larger images are reduced, each pixel the mean of those that it stands for."""
COLOR_LEVELS = 32

_STYLE = (
    "@media (prefers-color-scheme: dark) "
    "{ .glassformer-view .paper { fill: #16181d } .glassformer-view .ink { fill: #e9e9ea } }"
)


def shade(fraction: float) -> str:
    """The color of a place from 0 (lowest) to 1 (highest)."""
    level = round(max(0.0, min(fraction, 1.0)) * (SHADES - 1)) / (SHADES - 1) * (len(CIVIDIS) - 1)
    left = min(int(level), len(CIVIDIS) - 2)
    return mixed(CIVIDIS[left], CIVIDIS[left + 1], level - left)


def mixed(one: str, other: str, part: float) -> str:
    """The color ``part`` of the way from ``one`` to ``other``."""
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(rgb(one), rgb(other), strict=True))


def rgb(color: str) -> list[int]:
    """Red, green and blue of ``#rrggbb``."""
    return [int(color[start : start + 2], 16) for start in (1, 3, 5)]


def ink(fraction: float) -> str:
    """Black or white, whichever is read more easily on ``shade(fraction)``."""
    return "black" if fraction >= 0.5 else "white"


def extent(matrices: Sequence[Matrix], written: Callable[[str], str] = str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Maximum rows and columns of a matrix, and columns of text of the longest row and column label, as written."""
    sides = [[matrix.rows for matrix in matrices], [matrix.columns for matrix in matrices]]
    rows, columns = (max(map(len, axes)) for axes in sides)
    high, wide = (max(columns_of(written(label.short)) for axis in axes for label in axis.labels) for axes in sides)
    return (rows, columns), (high, wide)


def lines_of(panels: int, most: int) -> tuple[int, int]:
    """Lines, and panels in each, of at most ``most``: as even as they can be."""
    lines = -(-panels // max(1, most))
    return lines, -(-panels // lines)


def svg(title: str, matrices: Sequence[Matrix], adaptive: bool = True) -> str:
    """Matrices in lines, the titles of their axes once, the color bar at the right.

    ``adaptive``: dark paper where the page is dark; otherwise always light.
    """
    grid, first = _grid(matrices), matrices[0]
    width = max(grid.width + 34 + 96, 8 * len(title) + 44)
    bar = max(110.0, min(grid.height - grid.top - 14, 220.0))
    height = 66 + max(grid.height, grid.top + bar, CHARACTER * len(first.rows.title)) + 14
    style = f"<style>{_STYLE}</style>" if adaptive else ""
    summary = f"rows: {first.rows.title}; columns: {first.columns.title}; shade: {first.scale.title}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="glassformer-view" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" style="max-width:100%;height:auto" '
        'font-family="ui-monospace, monospace" font-size="12" role="img">',
        f"<title>{escape(title)}</title><desc>{escape(summary)}</desc>{style}",
        f'<rect class="paper" width="{width:g}" height="{height:g}" fill="#ffffff"/>',
        '<g class="ink" fill="#16181d">',
        f'<text x="22" y="26" font-size="14" font-weight="bold">{escape(title)}</text>',
        _text(34 + grid.width / 2, 52, first.columns.title, "middle"),
        _turned(20, 59 + (height - 66) / 2, first.rows.title, "middle"),
        "</g>",
    ]
    for index, matrix in enumerate(matrices):
        line, column = divmod(index, grid.per_line)
        parts += _panel(matrix, grid, 34 + column * grid.block_width, 66 + line * grid.block_height)
    parts += _color_bar(first.scale, 34 + grid.width + 22, 66 + grid.top, bar)
    return "\n".join([*parts, "</svg>\n"])


@dataclass(frozen=True)
class _Grid:
    """Sizes in pixels: of a cell, of the labels left of and above a panel, of a panel with its labels."""

    cell_width: float
    cell_height: float
    left: float
    top: float
    block_width: float
    block_height: float
    per_line: int
    lines: int
    turned: bool
    numbers: bool

    @property
    def width(self) -> float:
        return self.block_width * self.per_line

    @property
    def height(self) -> float:
        return self.block_height * self.lines


def _grid(matrices: Sequence[Matrix]) -> _Grid:
    (rows, columns), (longest_row, longest_column) = extent(matrices)
    high, wide = CHARACTER * longest_row, CHARACTER * longest_column
    cell = max(15.0, min((900 if len(matrices) == 1 else 300) / columns, 72.0))
    longest = max(len(compact(float(value))) for matrix in matrices for value in matrix.values.flat)
    pictured = any(matrix.picture is not None for matrix in matrices)
    numbers = cell >= 6.4 * longest + 5 and not pictured
    cell_height = cell if pictured else 26.0 if numbers else min(cell, 26.0)
    left, turned = high + 12, wide > cell - 3
    top = (wide + 12 if turned else 22) + (20 if any(matrix.title for matrix in matrices) else 0)
    block_width, block_height = left + cell * columns + 14, top + cell_height * rows + 14
    lines, per_line = lines_of(len(matrices), int(LINE // block_width))
    return _Grid(cell, cell_height, left, top, block_width, block_height, per_line, lines, turned, numbers)


def _panel(matrix: Matrix, grid: _Grid, x: float, y: float) -> list[str]:
    """Labels, then all cells of one shade as one path, so that a large matrix stays a small file, then numbers."""
    x, y = x + grid.left, y + grid.top
    parts = ['<g class="ink" fill="#16181d">']
    if matrix.title:
        above = y - grid.top + 12
        parts.append(_text(x + grid.cell_width * len(matrix.columns) / 2, above, matrix.title, "middle"))
    for j, label in enumerate(matrix.columns.labels):
        middle = x + grid.cell_width * (j + 0.5)
        if grid.turned:
            parts.append(_turned(middle + 4, y - 7, label.short, "start"))
        else:
            parts.append(_text(middle, y - 7, label.short, "middle"))
    for i, label in enumerate(matrix.rows.labels):
        parts.append(_text(x - 7, y + grid.cell_height * (i + 0.5) + 4, label.short, "end"))
    parts.append('</g><g shape-rendering="crispEdges">')
    paths: dict[str, list[str]] = {}
    for i, j, value in _cells(matrix):
        path = paths.setdefault(shade(matrix.scale.fraction(value)), [])
        corner = f"M{x + grid.cell_width * j:.2f} {y + grid.cell_height * i:.2f}"
        path.append(f"{corner}h{grid.cell_width:.2f}v{grid.cell_height:.2f}h-{grid.cell_width:.2f}z")
    parts += [f'<path fill="{color}" d="{"".join(path)}"/>' for color, path in sorted(paths.items())]
    if matrix.picture is not None:
        size = grid.cell_width * len(matrix.columns), grid.cell_height * len(matrix.rows)
        parts += pixel_paths(matrix.picture, x, y, *size, opacity=0.45)
    parts.append('</g><g font-size="11">')
    for i, j, value in _cells(matrix) if grid.numbers else ():
        center = x + grid.cell_width * (j + 0.5), y + grid.cell_height * (i + 0.5) + 4
        parts.append(_text(*center, compact(value), "middle", ink(matrix.scale.fraction(value))))
    return [*parts, "</g>"]


def _cells(matrix: Matrix) -> Iterator[tuple[int, int, float]]:
    for i, row in enumerate(matrix.values):
        for j, value in enumerate(row):
            yield i, j, float(value)


def _color_bar(scale: Scale, x: float, y: float, height: float) -> list[str]:
    step = height / SHADES
    parts = ['<g shape-rendering="crispEdges">']
    for level in range(SHADES):
        color = shade(level / (SHADES - 1))
        parts.append(
            f'<rect x="{x:g}" y="{y + height - step * (level + 1):.2f}" width="14" height="{step + 0.5:.2f}" '
            f'fill="{color}"/>'
        )
    parts.append('</g><g class="ink" fill="#16181d" font-size="11">')
    for part in (0.0, 0.5, 1.0):
        value = scale.low + part * (scale.high - scale.low)
        parts.append(_text(x + 19, y + height * (1 - part) + 4, compact(value), "start"))
    parts.append(_turned(x + 66, y + height / 2, scale.title, "middle"))
    return [*parts, "</g>"]


def reduced(values: NDArray[np.float64], largest: int = MAX_PIXELS) -> NDArray[np.float64]:
    """``[row, column, 3]`` from 0 to 1, of at most ``largest`` a side; gray has three equal channels."""
    for axis in (0, 1):
        step = -(-values.shape[axis] // largest)
        starts = np.arange(0, values.shape[axis], step)
        sizes = np.diff([*starts, values.shape[axis]])
        shape = [-1 if one == axis else 1 for one in range(3)]
        values = np.add.reduceat(values, starts, axis) / sizes.reshape(shape)
    return np.repeat(values, 3, axis=2) if values.shape[2] == 1 else values


def pixel_colors(values: NDArray[np.float64]) -> list[list[str]]:
    """A color for each pixel, of ``COLOR_LEVELS`` a channel, so that neighbors share one."""
    levels = np.round(np.clip(values, 0, 1) * (COLOR_LEVELS - 1)) / (COLOR_LEVELS - 1)
    return [["#" + "".join(f"{round(255 * part):02x}" for part in pixel) for pixel in row] for row in levels.tolist()]


def pixel_paths(
    values: NDArray[np.float64], x: float, y: float, width: float, height: float, opacity: float = 1
) -> list[str]:
    """One path for each color; the image fills the rectangle."""
    small = reduced(values)
    cell_width, cell_height = width / small.shape[1], height / small.shape[0]
    found: dict[str, list[str]] = {}
    for row, line in enumerate(pixel_colors(small)):
        start = 0
        for column in range(1, len(line) + 1):
            if column == len(line) or line[column] != line[start]:
                corner = f"M{x + start * cell_width:.2f} {y + row * cell_height:.2f}"
                run = f"h{(column - start) * cell_width:.2f}v{cell_height:.2f}h-{(column - start) * cell_width:.2f}z"
                found.setdefault(line[start], []).append(corner + run)
                start = column
    seen = "" if opacity == 1 else f' fill-opacity="{opacity:g}"'
    return [f'<path fill="{color}"{seen} d="{"".join(parts)}"/>' for color, parts in sorted(found.items())]


def _text(x: float, y: float, text: str, anchor: str, fill: str = "") -> str:
    color = f' fill="{fill}"' if fill else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{color}>{escape(text)}</text>'


def _turned(x: float, y: float, text: str, anchor: str) -> str:
    """Read from below."""
    return f'<text transform="translate({x:.1f} {y:.1f}) rotate(-90)" text-anchor="{anchor}">{escape(text)}</text>'
