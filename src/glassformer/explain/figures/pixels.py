"""An image as shapes of an SVG: no file is embedded, so nothing has to be fetched or decoded."""

import numpy as np
from numpy.typing import NDArray

LARGEST = 64
"""Pixels a side; larger images are shown smaller, each pixel the mean of those it stands for."""
LEVELS = 32


def reduced(values: NDArray[np.float64], largest: int = LARGEST) -> NDArray[np.float64]:
    """``[row, column, 3]`` from 0 to 1, of at most ``largest`` a side; gray has three equal channels."""
    for axis in (0, 1):
        step = -(-values.shape[axis] // largest)
        starts = np.arange(0, values.shape[axis], step)
        sizes = np.diff([*starts, values.shape[axis]])
        shape = [-1 if one == axis else 1 for one in range(3)]
        values = np.add.reduceat(values, starts, axis) / sizes.reshape(shape)
    return np.repeat(values, 3, axis=2) if values.shape[2] == 1 else values


def colors(values: NDArray[np.float64]) -> list[list[str]]:
    """A color for each pixel, of ``LEVELS`` a channel, so that neighbors share one."""
    levels = np.round(np.clip(values, 0, 1) * (LEVELS - 1)) / (LEVELS - 1)
    return [["#" + "".join(f"{round(255 * part):02x}" for part in pixel) for pixel in row] for row in levels.tolist()]


def paths(
    values: NDArray[np.float64], x: float, y: float, width: float, height: float, opacity: float = 1
) -> list[str]:
    """One path for each color; the image fills the rectangle."""
    small = reduced(values)
    cell_width, cell_height = width / small.shape[1], height / small.shape[0]
    found: dict[str, list[str]] = {}
    for row, line in enumerate(colors(small)):
        start = 0
        for column in range(1, len(line) + 1):
            if column == len(line) or line[column] != line[start]:
                corner = f"M{x + start * cell_width:.2f} {y + row * cell_height:.2f}"
                run = f"h{(column - start) * cell_width:.2f}v{cell_height:.2f}h-{(column - start) * cell_width:.2f}z"
                found.setdefault(line[start], []).append(corner + run)
                start = column
    seen = "" if opacity == 1 else f' fill-opacity="{opacity:g}"'
    return [f'<path fill="{color}"{seen} d="{"".join(parts)}"/>' for color, parts in sorted(found.items())]
