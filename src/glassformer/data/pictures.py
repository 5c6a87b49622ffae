"""Picture files by Pillow, which is optional: no other module imports it."""

import struct
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.errors import DataError
from glassformer.storage.regular_files import UnsuitableFileError, open_regular

try:
    from PIL import Image, ImageOps
except ImportError:
    Image: Any = None  # type: ignore[no-redef]

SUFFIXES = (".png", ".jpg", ".jpeg")
_DEEP_MODES = ("I", "F")  # and I;16, I;16B …: more than 8 bits a channel


def read_pictures(paths: Sequence[Path], size: tuple[int, int] | None, channels: int | None) -> NDArray[np.uint8]:
    """PNG and JPEG files as bytes ``[images, height, width, channels]``, of ``size`` (height, width).

    The largest centered part of the wanted proportions is scaled to ``size``, bicubic. Without a size, all files must
    have that of the first. Raises ``DataError`` naming the file that is not a whole picture.
    """
    if Image is None:
        raise DataError(
            f"{paths[0]}: picture files are read by Pillow, which is not installed; "
            "install glassformer[images], or give the images as IDX or .npz"
        )
    channels = channels or 3
    height, width = size or _read(paths[0], None, channels).shape[:2]
    pixels = np.empty((len(paths), height, width, channels), np.uint8)
    for place, path in zip(pixels, paths, strict=True):
        picture = _read(path, size, channels)
        if picture.shape != place.shape:
            raise DataError(
                f"{path}: is {picture.shape[0]} × {picture.shape[1]} pixels, and {paths[0]} {height} × {width}; "
                "set data.image_size to the height and width that all shall have"
            )
        place[:] = picture
    return pixels


def _read(path: Path, size: tuple[int, int] | None, channels: int) -> NDArray[np.uint8]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            warnings.simplefilter("ignore", UserWarning)  # of malformed metadata
            with open_regular(path) as file, Image.open(file, formats=["PNG", "JPEG"]) as opened:
                if opened.mode.startswith(_DEEP_MODES):
                    raise DataError(f"{path}: has more than 8 bits a channel; save it with 8")
                picture = ImageOps.exif_transpose(opened).convert("L" if channels == 1 else "RGB")
                if size:
                    picture = ImageOps.fit(picture, size[::-1], Image.Resampling.BICUBIC)
    except DataError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DataError(f"{path}: has more pixels than {Image.MAX_IMAGE_PIXELS:,}; scale it down") from None
    except UnsuitableFileError as error:
        raise DataError(f"{path}: {error}; replace or remove it") from None
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error):
        raise DataError(f"{path}: cannot be read as a PNG or JPEG picture; replace or remove the file") from None
    return np.asarray(picture, np.uint8).reshape(picture.height, picture.width, channels)
