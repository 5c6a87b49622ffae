"""Matrices as small PNG images in data addresses: one pixel a number, colored as tables are.

Signed numbers are transparent at 0, so that one image fits a light and a dark page. Long axes are pooled by their
largest absolute value.
"""

import struct
import zlib
from base64 import b64encode
from functools import cache

import numpy as np
from numpy.typing import NDArray

from glassformer.explain.figures.svg import reduced, rgb, shade
from glassformer.explain.matrix import Kind

LEVELS = 64
LARGEST_SIDE = 128
"""Pixels of a side; longer axes are pooled."""
LARGEST_PHOTO = 256
"""Pixels of a side of an input image."""
COMPRESSION = 6
BELOW, ABOVE = "#2f74c0", "#d9772e"
HIDDEN = (128, 128, 128, 70)
"""Color of what is not finite, such as a masked score."""


def data_address(values: NDArray[np.float64], kind: Kind, largest_side: int = LARGEST_SIDE) -> str:
    """The image of a matrix, of at most ``largest_side`` rows and columns."""
    return _data_address(png(values, kind, largest_side))


def png(values: NDArray[np.float64], kind: Kind, largest_side: int = LARGEST_SIDE) -> bytes:
    """An indexed PNG with one byte a pixel."""
    rows, columns = (-(-size // largest_side) for size in values.shape)
    levels = _levels(pooled(values, rows, columns), kind)
    palette = _palette(kind)
    header = struct.pack(">IIBBBBB", levels.shape[1], levels.shape[0], 8, 3, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in levels)
    colors = b"".join(bytes(color[:3]) for color in palette)
    alphas = bytes(color[3] for color in palette)
    return _file(
        (b"IHDR", header),
        (b"PLTE", colors),
        (b"tRNS", alphas),
        (b"IDAT", zlib.compress(rows, COMPRESSION)),
        (b"IEND", b""),
    )


def _data_address(image: bytes) -> str:
    return f"data:image/png;base64,{b64encode(image).decode()}"


def _file(*chunks: tuple[bytes, bytes]) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def photo(values: NDArray[np.float64]) -> str:
    """Pixels ``[row, column, channel]`` from 0 to 1 as a PNG in a data address, reduced to ``LARGEST_PHOTO`` a side."""
    levels = np.round(255 * np.clip(reduced(values, LARGEST_PHOTO), 0, 1)).astype(np.uint8)
    header = struct.pack(">IIBBBBB", levels.shape[1], levels.shape[0], 8, 2, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in levels)
    return _data_address(_file((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")))


def pooled(values: NDArray[np.float64], rows: int, columns: int) -> NDArray[np.float64]:
    """The number of the largest absolute value of each block of ``rows`` by ``columns``.

    −∞, a hidden score, counts only where a block has nothing else; NaN always does.
    """
    for axis, size in enumerate((rows, columns)):
        if size > 1:
            starts = range(0, values.shape[axis], size)
            high = np.maximum.reduceat(values, starts, axis)
            low = np.minimum.reduceat(np.where(np.isneginf(values), np.inf, values), starts, axis)
            values = np.where(high < -low, low, high)
    return values


def _levels(values: NDArray[np.float64], kind: Kind) -> NDArray[np.uint8]:
    """Index of the color of each number; the last color is that of what is not finite."""
    finite = np.isfinite(values)
    numbers = np.where(finite, values, 0.0)
    if kind == "weights":
        part = np.clip(numbers, 0.0, 1.0)
    else:
        largest = float(np.abs(numbers).max()) or 1.0
        part = (numbers / largest + 1) / 2
    levels = np.round(part * (LEVELS - 1)).astype(np.uint8)
    return np.where(finite, levels, LEVELS).astype(np.uint8)


@cache
def _palette(kind: Kind) -> list[tuple[int, ...]]:
    """Colors of the levels, made once: a page of 144 heads would spend 70 ms on them."""
    if kind == "weights":
        colors = [(*rgb(shade(level / (LEVELS - 1))), 255) for level in range(LEVELS)]
    else:
        colors = [_signed(2 * level / (LEVELS - 1) - 1) for level in range(LEVELS)]
    return [*colors, HIDDEN]


def _signed(part: float) -> tuple[int, ...]:
    return (*rgb(BELOW if part < 0 else ABOVE), round(255 * abs(part) ** 0.8))
