"""Files of labeled images: IDX as MNIST is distributed, NumPy arrays, and a folder of PNG and JPEG files a class."""

import hashlib
import struct
import warnings
import zipfile
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from glassformer.data.input_errors import way_out
from glassformer.data.readers import open_bytes, unreadable
from glassformer.errors import DataError
from glassformer.storage.regular_files import UnsuitableFileError, open_regular

try:  # Pillow is optional, and no other module imports it
    from PIL import Image, ImageOps
except ImportError:
    Image: Any = None  # type: ignore[no-redef]

SUFFIXES = (".png", ".jpg", ".jpeg")
_DEEP_MODES = ("I", "F")  # and I;16, I;16B …: more than 8 bits a channel
_A_PATH_IS = (
    "a path is a prefix P of P-images-idx3-ubyte[.gz], that file itself, a .npz, a .npy of images, "
    "or a folder of one folder a class"
)
_NO_ARRAYS = (
    EOFError,
    ValueError,
    RuntimeError,
    MemoryError,
    TokenError,
    zlib.error,
    zipfile.BadZipFile,
)  # raised by numpy for invalid files


@dataclass(frozen=True)
class ImageSet:
    """Images in bytes and the class of each. ``pixels`` may be mapped into memory, so it may be larger than memory."""

    pixels: NDArray[np.uint8]  # images height width channels
    labels: NDArray[np.int64]  # of each of ``pixels``: which of ``names``
    names: tuple[str, ...]  # of the classes
    rows: NDArray[np.int64]  # which of ``pixels`` are of this set

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over shape, pixels, labels and names; file names do not enter."""
        digest = hashlib.sha256(repr((self.pixels.shape[1:], self.names)).encode())
        for start in range(0, len(self), 1024):
            rows = self.rows[start : start + 1024]
            digest.update(self.pixels[rows].tobytes())
            digest.update(self.labels[rows].astype("<i8").tobytes())
        return digest.hexdigest()

    def counts(self) -> dict[str, int]:
        """Images of each class."""
        return dict(zip(self.names, np.bincount(self.labels[self.rows], minlength=len(self.names)).tolist()))

    def named(self, names: Sequence[str], origin: str) -> "ImageSet":
        """The same images with labels that count in ``names``. A class that is not in them is an error."""
        place = {name: number for number, name in enumerate(names)}
        if unknown := [name for name in self.names if name not in place]:
            raise DataError(
                f"class {unknown[0]!r} is not among the {len(place)} of the training images",
                where=origin,
                remedy="take its images out",
                setting="data.train",
                advice="add some to data.train",
            )
        return replace(self, labels=np.array([place[name] for name in self.names])[self.labels], names=tuple(names))


def read_images(paths: Sequence[str], size: tuple[int, int] | None = None, channels: int | None = None) -> ImageSet:
    """All images of ``paths``, in order. Raises ``DataError`` for what is missing, damaged, or of another shape.

    Classes are in the order of their names, numbers by value.
    """
    sets = [_read(path, size, channels) for path in paths]
    for path, one in zip(paths, sets, strict=True):
        if one.pixels.shape[1:] != sets[0].pixels.shape[1:]:
            raise DataError(
                f"{path}: images are {_shape(one.pixels)}, and those of {paths[0]} {_shape(sets[0].pixels)}; "
                "give images of one shape"
            )
    if len(sets) == 1:
        return sets[0]
    names = _in_order({name for one in sets for name in one.names})
    labels = np.concatenate([one.named(names, "").labels for one in sets])
    return ImageSet(np.concatenate([one.pixels for one in sets]), labels, names, np.arange(len(labels)))


def _read(path: str, size: tuple[int, int] | None, channels: int | None) -> ImageSet:
    found = Path(path)
    pixels: NDArray[np.generic]
    labels: NDArray[np.generic]
    try:
        if found.is_dir():
            return _read_folder(found, size, channels)
        if found.suffix == ".npz":
            pixels, labels = _read_npz(found)
        elif found.suffix == ".npy":
            beside = _beside(found, [found.name])
            pixels, labels = _load_array(found), _load_array(beside)
            found = beside
        else:
            images = _idx_images(path)
            found = _beside(images, [images.name, images.name.removesuffix(".gz"), images.name + ".gz"])
            pixels, labels = _read_idx(images, "images", (3, 4)), _read_idx(found, "labels", (1,))
    except OSError as error:
        raise unreadable(found, error) from None
    checked = _checked(path, pixels, size, channels)
    if labels.ndim != 1 or labels.dtype.kind not in "iuU":
        raise DataError(f"{found}: labels are {labels.dtype} of shape {labels.shape}; give a whole number or text each")
    if len(labels) != len(checked):
        raise DataError(f"{path}: {len(checked)} images but {len(labels)} labels; give one label an image")
    return _image_set(path, checked, labels)


def _image_set(path: str, pixels: NDArray[np.uint8], labels: NDArray[np.generic]) -> ImageSet:
    found, inverse = np.unique(labels, return_inverse=True)
    try:
        names_found = [str(name) for name in found.tolist()]
        "".join(names_found).encode()
    except (SystemError, UnicodeEncodeError):  # an array of text may hold what is no character
        raise DataError(f"{path}: the name of a class is not valid Unicode; rename it") from None
    names = _in_order(set(names_found))
    place = {name: number for number, name in enumerate(names)}
    return ImageSet(pixels, np.array([place[name] for name in names_found])[inverse], names, np.arange(len(pixels)))


def _in_order(names: set[str]) -> tuple[str, ...]:
    def key(name: str) -> tuple[bool, int, str]:
        number = name.isascii() and name.isdecimal() and len(name) < 1000  # Python reads no longer ones
        return not number, int(name) if number else 0, name

    return tuple(sorted(names, key=key))


def _checked(
    path: str, pixels: NDArray[np.generic], size: tuple[int, int] | None, channels: int | None
) -> NDArray[np.uint8]:
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    if pixels.dtype != np.uint8:
        raise DataError(f"{path}: images are {pixels.dtype}; give bytes from 0 to 255 (uint8)")
    if pixels.ndim != 4 or pixels.shape[3] not in (1, 3):
        raise DataError(
            f"{path}: images have shape {pixels.shape}; give [images, height, width] or "
            "[images, height, width, channels] with 1 or 3 channels"
        )
    if 0 in pixels.shape:
        raise DataError(f"{path}: has no image in it; give at least one")
    (height, width), n_channels = size or pixels.shape[1:3], channels or pixels.shape[3]
    if (height, width, n_channels) != pixels.shape[1:]:
        raise DataError(
            f"images are {_shape(pixels)}, not {height} × {width} × {n_channels}",
            where=str(path),
            remedy="scale them or give folders of pictures",
            setting="data.image_size",
            advice="set data.image_size and data.channels to their shape",
        )
    return pixels  # type: ignore[return-value]


def _shape(pixels: NDArray[np.generic]) -> str:
    return " × ".join(map(str, pixels.shape[1:]))


def _idx_images(path: str) -> Path:
    names = [path, *(f"{path}{dash}images{dot}idx3-ubyte" for dash, dot in (("-", "-"), ("-", ".")))]
    for name in names:
        for candidate in (Path(name), Path(f"{name}.gz")):
            if candidate.is_file():
                return candidate
    raise DataError(f"{path}: no such file or folder; {way_out(Path(path), _A_PATH_IS)}")


def _beside(images: Path, names: list[str]) -> Path:
    """The file of labels beside a file of images: its name, with labels for images."""
    for name in names:
        before, found, after = name.rpartition("images")
        candidate = images.with_name(f"{before}labels{after.replace('idx3', 'idx1')}")
        if found and candidate.is_file():
            return candidate
    raise DataError(
        f"{images}: no file of labels beside it; it has the same name, with labels for images (and idx1 for idx3)"
    )


def _read_idx(path: Path, what: str, dimensions: tuple[int, ...]) -> NDArray[np.uint8]:
    compressed = path.suffix == ".gz"
    with open_bytes(path, pipes=False) as file:
        shape, offset = _idx_shape(file, path, what, dimensions), file.tell()
        content = _at_most(file, prod(shape) + 1) if compressed else b""
    n_bytes, n_found = prod(shape), len(content) if compressed else path.stat().st_size - offset
    if n_found != n_bytes:
        found = "more" if n_found > n_bytes else n_found
        raise DataError(f"{path}: says it has {n_bytes} bytes of {what} and has {found}; copy it again")
    if compressed or not n_bytes:
        return np.frombuffer(content, np.uint8).reshape(shape)
    return np.asarray(np.memmap(path, np.uint8, "r", offset, shape))


def _idx_shape(file: BinaryIO, path: Path, what: str, dimensions: tuple[int, ...]) -> tuple[int, ...]:
    """Two zero bytes, the type (8: unsigned byte), the number of dimensions, each in 32 bits, largest byte first."""
    head = file.read(4)
    sizes = file.read(4 * head[3]) if len(head) == 4 else b""
    if head[:3] != b"\0\0\x08" or head[3] not in dimensions or len(sizes) < 4 * head[3]:
        raise DataError(f"{path}: does not begin like an IDX file of {what} in bytes; {_A_PATH_IS}")
    return tuple(np.frombuffer(sizes, ">u4").tolist())


def _at_most(file: BinaryIO, n_bytes: int) -> bytearray:
    """In pieces: a damaged head may ask for more than there is memory."""
    content = bytearray()
    while piece := file.read(min(n_bytes - len(content), 1 << 24)):
        content += piece
    return content


def _read_npz(path: Path) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    try:
        with path.open("rb") as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as arrays:
            names, found = ("images", "labels"), arrays.files
            if set(names) <= set(found):
                _check_headers(path, names)
                return arrays["images"], arrays["labels"]
    except _NO_ARRAYS:
        raise _not_arrays(path) from None
    missing = next(name for name in names if name not in found)
    raise DataError(f"{path}: has no array {missing!r} (it has {found}); save it with images= and labels=")


def _load_array(path: Path) -> NDArray[np.generic]:
    try:
        with path.open("rb") as file:
            _check_header(file, path.stat().st_size)
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except _NO_ARRAYS:
        raise _not_arrays(path) from None


def _check_headers(path: Path, names: Collection[str]) -> None:
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.filename.removesuffix(".npy") in names:
                with archive.open(entry) as file:
                    _check_header(file, entry.file_size)


def _check_header(file: IO[bytes], size: int) -> None:
    """Raise ``ValueError`` if the header of a NumPy array declares more than ``size`` bytes, before allocation."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if any(type(length) is not int or length < 0 for length in shape):
        raise ValueError(f"shape {shape}")
    if file.tell() + prod(shape) * max(dtype.itemsize, 1) > size:
        raise ValueError(f"{shape} of {dtype} in {size} bytes")


def _not_arrays(path: Path) -> DataError:
    fault = "is not a complete file of NumPy arrays of numbers or text"
    return DataError(f"{path}: {fault}; save it again with numpy.save(z)")


def _read_folder(folder: Path, size: tuple[int, int] | None, channels: int | None) -> ImageSet:
    """One folder a class, named after it. Names that begin with a dot are passed over, anything else is an error."""
    files, labels = list[Path](), list[str]()
    for group in _visible(folder):
        if not group.is_dir():
            raise DataError(f"{group}: is not in the folder of a class; move it into one, or remove it")
        pictures = _visible(group)
        if not pictures:
            raise DataError(f"{group}: is a class with no picture in it; add one, or remove the folder")
        for picture in pictures:
            if picture.is_dir() or picture.suffix.lower() not in SUFFIXES:
                raise DataError(f"{picture}: is not a PNG or JPEG file; convert it, or move it out of the folder")
        files += pictures
        labels += [group.name] * len(pictures)
    if not files:
        raise DataError(f"{folder}: has no folder in it; make one a class, with pictures in it")
    return _image_set(str(folder), read_pictures(files, size, channels), np.array(labels))


def _visible(folder: Path) -> list[Path]:
    return sorted((path for path in folder.iterdir() if not path.name.startswith(".")), key=lambda path: path.name)


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
    height, width = size or _read_picture(paths[0], None, channels).shape[:2]
    pixels = np.empty((len(paths), height, width, channels), np.uint8)
    for place, path in zip(pixels, paths, strict=True):
        picture = _read_picture(path, size, channels)
        if picture.shape != place.shape:
            raise DataError(
                f"{path}: is {picture.shape[0]} × {picture.shape[1]} pixels, and {paths[0]} {height} × {width}; "
                "set data.image_size to the height and width that all shall have"
            )
        place[:] = picture
    return pixels


def _read_picture(path: Path, size: tuple[int, int] | None, channels: int) -> NDArray[np.uint8]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            warnings.simplefilter("ignore", UserWarning)  # of malformed metadata
            with open_regular(path) as file, Image.open(file, formats=["PNG", "JPEG"]) as original:
                if original.mode.startswith(_DEEP_MODES):
                    raise DataError(f"{path}: has more than 8 bits a channel; save it with 8")
                picture = ImageOps.exif_transpose(original).convert("L" if channels == 1 else "RGB")
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
