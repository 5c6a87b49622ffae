"""Images: read alike from every form, refused with the reason."""

import gzip
import io
import mmap
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from glassformer.data import image_files
from glassformer.data.config import ImageConfig
from glassformer.data.image_files import read_images
from glassformer.data.images import ImageFormat, ordered_images, prepare_images
from glassformer.errors import ConfigError, DataError

NUMBERS = np.random.default_rng(3)
PIXELS = NUMBERS.integers(0, 256, (30, 5, 4), np.uint8)
LABELS = np.repeat(np.arange(3), 10)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def write_idx(prefix: Path, pixels: np.ndarray = PIXELS, labels: np.ndarray = LABELS, dot: str = "-") -> str:
    Path(f"{prefix}-images{dot}idx3-ubyte").write_bytes(idx(pixels))
    Path(f"{prefix}-labels{dot}idx1-ubyte").write_bytes(idx(labels))
    return str(prefix)


def write_folder(folder: Path, pixels: np.ndarray = PIXELS, names: list[str] | None = None) -> str:
    for number, (picture, name) in enumerate(zip(pixels, names or LABELS.astype(str).tolist(), strict=True)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / name / f"{number:04}.png")
    return str(folder)


def write_npz(path: Path, pixels: np.ndarray = PIXELS, labels: np.ndarray = LABELS) -> str:
    np.savez(path, images=pixels, labels=labels)
    return str(path)


def mapped(array: object) -> bool:
    """Whether the bytes are those of a file, not of memory."""
    while not isinstance(array, mmap.mmap) and getattr(array, "base", None) is not None:
        array = array.base
    return isinstance(array, mmap.mmap)


def test_every_form_gives_the_same_images(tmp_path: Path) -> None:
    for part in ("images-idx3-ubyte", "labels-idx1-ubyte"):
        write_idx(tmp_path / "plain")
        (tmp_path / f"packed-{part}.gz").write_bytes(gzip.compress((tmp_path / f"plain-{part}").read_bytes()))
    np.save(tmp_path / "all-images.npy", PIXELS[..., None])
    np.save(tmp_path / "all-labels.npy", LABELS)
    paths = [
        write_idx(tmp_path / "plain"),
        str(tmp_path / "plain-images-idx3-ubyte"),
        write_idx(tmp_path / "dotted", dot="."),
        str(tmp_path / "packed"),
        str(tmp_path / "packed-images-idx3-ubyte.gz"),
        str(tmp_path / "all-images.npy"),
        write_npz(tmp_path / "all.npz"),
        write_folder(tmp_path / "folder"),
    ]
    sets = [read_images([path], channels=1) for path in paths]
    assert len({one.fingerprint for one in sets}) == 1
    for one in sets:
        assert (one.pixels[..., 0] == PIXELS).all()
        assert one.counts() == {"0": 10, "1": 10, "2": 10}
    assert [mapped(one.pixels) for one in sets] == [True, True, True, False, False, True, False, False]


def test_classes_are_named_and_in_the_order_of_their_names(tmp_path: Path) -> None:
    write_folder(tmp_path / "one", PIXELS[:3], ["cat", "10", "9"])
    write_folder(tmp_path / "two", PIXELS[3:5], ["ant", "9"])
    both = read_images([str(tmp_path / "one"), str(tmp_path / "two")], channels=1)
    assert both.names == ("9", "10", "ant", "cat")
    assert [both.names[label] for label in both.labels] == ["10", "9", "cat", "9", "ant"]
    assert (both.pixels[[2, 3], ..., 0] == PIXELS[[0, 4]]).all()


def test_labels_count_in_the_names_of_the_training_classes(tmp_path: Path) -> None:
    train = write_npz(tmp_path / "a.npz", PIXELS[:4], np.array(["x", "b", "m", "b"]))
    test = write_npz(tmp_path / "b.npz", PIXELS[:2], np.array(["x", "m"]))
    data = prepare_images(ImageConfig(train=[train], test=[test]))
    assert data.format.classes == ["b", "m", "x"]
    assert data.validation is None
    assert data.test is not None
    assert data.test.labels.tolist() == [2, 1]
    other = write_npz(tmp_path / "c.npz", PIXELS[:2], np.array(["x", "new"]))
    with pytest.raises(DataError, match=r"data\.test: class 'new' is not among the 3"):
        prepare_images(ImageConfig(train=[train], test=[other]))


def test_normalization_is_measured_on_training_images(tmp_path: Path) -> None:
    pixels = NUMBERS.integers(0, 256, (1500, 2, 3, 3), np.uint8) // np.array([1, 2, 4], np.uint8)
    train = write_npz(tmp_path / "a.npz", pixels, np.zeros(1500, int))
    test = write_npz(tmp_path / "b.npz", 255 - pixels[:5], np.zeros(5, int))
    data = prepare_images(ImageConfig(train=[train], test=[test]))
    flat = pixels.reshape(-1, 3) / 255
    assert data.format.mean == pytest.approx(flat.mean(0))
    assert data.format.deviation == pytest.approx(flat.std(0))
    every = next(ordered_images(data.train, data.format, 1500)).images
    assert every.shape == (1500, 3, 2, 3)
    assert every.dtype == torch.float32
    assert torch.allclose(every.mean((0, 2, 3)), torch.zeros(3), atol=1e-4)
    assert torch.allclose(every.std((0, 2, 3)), torch.ones(3), atol=1e-3)
    assert ImageFormat.parse(data.format.model_dump(mode="json")) == data.format
    for value in (51, 29):  # of the second the deviation is, by rounding, 1e-17
        flat_image = write_npz(tmp_path / "c.npz", np.full((2, 3, 3), value, np.uint8), np.array([0, 1]))
        assert prepare_images(ImageConfig(train=[flat_image])).format.deviation == [1.0]


def broken_idx(folder: Path) -> str:
    write_idx(folder / "x")
    whole = (folder / "x-images-idx3-ubyte").read_bytes()
    (folder / "x-images-idx3-ubyte").write_bytes(whole[:-7])
    return str(folder / "x")


def long_packed_idx(folder: Path) -> str:
    write_idx(folder / "x")
    (folder / "x-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(PIXELS) + b"?"))
    (folder / "x-images-idx3-ubyte").unlink()
    return str(folder / "x")


def cut_gzip(folder: Path) -> str:
    path = long_packed_idx(folder)
    packed = Path(f"{path}-images-idx3-ubyte.gz")
    packed.write_bytes(packed.read_bytes()[:-9])
    return path


def huge_head(folder: Path) -> str:
    path = long_packed_idx(folder)
    head = struct.pack(">HBB3I", 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1)
    Path(f"{path}-images-idx3-ubyte.gz").write_bytes(gzip.compress(head))
    return path


def no_labels(folder: Path) -> str:
    Path(f"{write_idx(folder / 'x')}-labels-idx1-ubyte").unlink()
    return str(folder / "x")


def written(folder: Path, content: bytes, name: str = "x-images-idx3-ubyte") -> str:
    (folder / name).write_bytes(content)
    (folder / "x-labels-idx1-ubyte").write_bytes(idx(LABELS))
    return str(folder / name)


def npy_alone(folder: Path) -> str:
    np.save(folder / "images.npy", PIXELS)
    return str(folder / "images.npy")


def objects(folder: Path) -> str:
    return write_npz(folder / "x.npz", np.array([PIXELS[0], None], object))


def misnamed(folder: Path) -> str:
    np.savez(folder / "x.npz", x_train=PIXELS)
    return str(folder / "x.npz")


def in_folder(folder: Path, spoil: Callable[[Path], object]) -> str:
    path = write_folder(folder / "f")
    spoil(folder / "f")
    return path


def deep(folder: Path) -> None:
    Image.fromarray(PIXELS[0].astype(np.uint16)).save(folder / "1" / "deep.png")


def with_shape(folder: Path, kind: str, shape: tuple[int, ...], dtype: str = "|u1") -> str:
    """Write an array of 64 bytes with a false header."""
    array, labels = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(array, {"descr": dtype, "fortran_order": False, "shape": shape})
    array.write(bytes(64))
    np.save(labels, LABELS)
    path = folder / f"images.{kind}"
    if kind == "npy":
        path.write_bytes(array.getvalue())
        (folder / "labels.npy").write_bytes(labels.getvalue())
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("images.npy", array.getvalue())
            archive.writestr("labels.npy", labels.getvalue())
    return str(path)


@pytest.mark.parametrize("kind", ["npz", "npy"])
@pytest.mark.parametrize(
    "shape", [(10**12, 28, 28), (2**31, 2**31, 2), (2**63,), (2**64, 1, 1), (10**30,), (-1, 8, 8), (True, 8, 8)]
)
@pytest.mark.parametrize("dtype", ["|u1", "<f8", "<U0", "|V0"])
def test_array_headers_larger_than_their_file_are_refused(
    tmp_path: Path, kind: str, shape: tuple[int, ...], dtype: str
) -> None:
    with pytest.raises(DataError, match="is not a complete file of NumPy arrays"):
        read_images([with_shape(tmp_path, kind, shape, dtype)])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda f: str(f / "none"), r"no such file or folder; a path is a prefix"),
        (broken_idx, r"says it has 600 bytes of images and has 593"),
        (long_packed_idx, r"says it has 600 bytes of images and has more"),
        (cut_gzip, r"not a complete gzip file"),
        (huge_head, r"bytes of images and has 0"),
        (no_labels, r"no file of labels beside it"),
        (lambda f: written(f, b"P5 28 28"), r"does not begin like an IDX file of images"),
        (lambda f: written(f, b""), r"does not begin like an IDX file"),
        (lambda f: written(f, idx(PIXELS)[:6]), r"does not begin like an IDX file"),
        (lambda f: written(f, idx(PIXELS[:0])), r"has no image in it"),
        (lambda f: write_idx(f / "x", PIXELS, LABELS[:-1]), r"30 images but 29 labels"),
        (lambda f: write_npz(f / "x.npz", PIXELS, LABELS[:-1]), r"30 images but 29 labels"),
        (lambda f: write_npz(f / "x.npz", PIXELS / 255), r"images are float64; give bytes"),
        (lambda f: write_npz(f / "x.npz", PIXELS.reshape(30, 1, 5, 4)), r"images have shape \(30, 1, 5, 4\)"),
        (lambda f: write_npz(f / "x.npz", PIXELS, LABELS / 2), r"labels are float64"),
        (lambda f: write_npz(f / "x.npz", PIXELS, LABELS[:, None]), r"of shape \(30, 1\)"),
        (objects, r"not a complete file of NumPy arrays"),
        (misnamed, r"has no array 'images' \(it has \['x_train'\]\)"),
        (npy_alone, r"no file of labels beside it"),
        (lambda f: written(f, b"\x93NUMPY nonsense", "images.npz"), r"not a complete file of NumPy arrays"),
        (lambda f: in_folder(f, lambda g: (g / "empty").mkdir()), r"f/empty: is a class with no picture"),
        (lambda f: in_folder(f, lambda g: (g / "x.png").touch()), r"f/x\.png: is not in the folder of a class"),
        (lambda f: in_folder(f, lambda g: (g / "1" / "x.gif").touch()), r"1/x\.gif: is not a PNG or JPEG file"),
        (lambda f: in_folder(f, lambda g: (g / "1" / "x.png").touch()), r"1/x\.png: cannot be read as a PNG or JPEG"),
        (lambda f: in_folder(f, deep), r"1/deep\.png: has more than 8 bits"),
        (lambda f: str(f), r"has no folder in it"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, make: Callable[[Path], str], said: str) -> None:
    with pytest.raises(DataError, match=said) as caught:
        read_images([make(tmp_path)])
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_arrays_of_another_shape_are_refused(tmp_path: Path) -> None:
    small = write_npz(tmp_path / "a.npz")
    large = write_npz(tmp_path / "b.npz", np.zeros((2, 6, 4), np.uint8), np.array([0, 1]))
    with pytest.raises(DataError, match=r"b\.npz: images are 6 × 4 × 1, and those of .*a\.npz 5 × 4 × 1"):
        read_images([small, large])
    with pytest.raises(DataError, match=r"b\.npz: images are 6 × 4 × 1, not 5 × 4 × 1; .* set data\.image_size"):
        prepare_images(ImageConfig(train=[small], validation=[large]))


def test_half_a_picture_is_refused(tmp_path: Path) -> None:
    path = Path(write_folder(tmp_path / "f", NUMBERS.integers(0, 256, (1, 40, 40), np.uint8), ["a"]))
    picture = next((path / "a").iterdir())
    picture.write_bytes(picture.read_bytes()[:-300])
    with pytest.raises(DataError, match=r"0000\.png: cannot be read"):
        read_images([str(path)])


def test_pictures_are_cut_to_size_from_their_middle(tmp_path: Path) -> None:
    wide = np.zeros((1, 10, 30), np.uint8)
    wide[:, :, 10:20] = 200
    path = write_folder(tmp_path / "f", wide, ["a"])
    assert (read_images([path], (10, 10), 3).pixels == 200).all()
    assert read_images([path]).pixels.shape == (1, 10, 30, 3)
    (tmp_path / "f" / "a" / ".hidden").touch()
    Image.fromarray(PIXELS[0]).save(tmp_path / "f" / "a" / "small.png")
    with pytest.raises(DataError, match=r"small\.png: is 5 × 4 pixels, and .*0000\.png 10 × 30; set data.image_size"):
        read_images([path])
    shaped = read_images([path], (5, 4), 1)
    assert (shaped.pixels[1, ..., 0] == PIXELS[0]).all()
    format = ImageFormat(height=5, width=4, classes=["a"], mean=[0.0], deviation=[1.0])
    read = format.load([tmp_path / "f" / "a" / "small.png"])
    assert torch.equal(read, torch.from_numpy(PIXELS[:1, None]) / 255)


def test_a_picture_stands_upright(tmp_path: Path) -> None:
    (tmp_path / "f" / "a").mkdir(parents=True)
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    Image.fromarray(PIXELS[0]).save(tmp_path / "f" / "a" / "x.png", exif=exif)
    assert (read_images([str(tmp_path / "f")], channels=1).pixels[0, ..., 0] == PIXELS[0, ::-1, ::-1]).all()


def test_without_pillow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_folder(tmp_path / "f")
    monkeypatch.setattr(image_files, "Image", None)
    with pytest.raises(DataError, match=r"install glassformer\[images\]"):
        read_images([path])


@pytest.mark.parametrize("share", [0.1, 0.25, 0.7])
def test_validation_holds_out_a_share_of_every_class(tmp_path: Path, share: float) -> None:
    train = [write_npz(tmp_path / "a.npz")]
    one, again, other = (
        prepare_images(ImageConfig(train=train, validation_share=share, split_seed=seed)) for seed in (1, 1, 2)
    )
    assert one.validation is not None
    assert again.validation is not None
    assert other.validation is not None
    assert sorted([*one.train.rows, *one.validation.rows]) == list(range(30))
    assert all(abs(count - 10 * share) <= 1 for count in one.validation.counts().values())
    assert (one.validation.rows == again.validation.rows).all()
    for seed in range(20):
        drawn = prepare_images(ImageConfig(train=train, validation_share=share, split_seed=seed)).validation
        assert drawn is not None
        assert all(abs(count - 10 * share) <= 1 for count in drawn.counts().values())
    assert one.validation.fingerprint != other.validation.fingerprint != one.train.fingerprint


def test_a_share_that_takes_a_class_whole_is_refused(tmp_path: Path) -> None:
    train = [write_npz(tmp_path / "a.npz", PIXELS[:3], np.arange(3))]
    with pytest.raises(DataError, match="too few training images"):
        prepare_images(ImageConfig(train=train, validation_share=0.5))
    with pytest.raises(DataError, match="leaves none on one side"):
        prepare_images(ImageConfig(train=train, validation_share=0.1))
    with pytest.raises(ConfigError, match="remove one of them"):
        ImageConfig.parse({"train": train, "validation": train, "validation_share": 0.1})
