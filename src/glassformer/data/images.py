"""Batches of labeled images: bytes on disk or in memory, normalized to floats batch by batch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from glassformer.config import Config
from glassformer.data.augment import erase, mix, move
from glassformer.data.config import AugmentConfig, ImageConfig
from glassformer.data.image_files import ImageSet, read_images, read_pictures
from glassformer.data.loader import Draw, ResumableLoader, Tensors
from glassformer.data.sampling import Indices, shuffle
from glassformer.data.token_store import json_digest
from glassformer.errors import DataError


class ImageFormat(Config):
    """Shape, class names and normalization of the images that a model was trained on."""

    height: int = Field(gt=0)
    width: int = Field(gt=0)
    classes: list[str] = Field(min_length=1, description="name of each label")
    mean: list[float] = Field(min_length=1, description="of each channel of the training images, from 0 to 1")
    deviation: list[float] = Field(min_length=1, description="standard, of each channel, likewise")

    @property
    def channels(self) -> int:
        return len(self.mean)

    def normalize(
        self, images: Float[Tensor, "rows channels height width"]
    ) -> Float[Tensor, "rows channels height width"]:
        """(x - mean) / deviation by channel, of values from 0 to 1."""
        mean, deviation = (torch.tensor(values)[:, None, None] for values in (self.mean, self.deviation))
        return (images - mean) / deviation

    def load(self, paths: Sequence[Path]) -> Float[Tensor, "rows channels height width"]:
        """Picture files as the model is given them, the largest centered part of each."""
        return self.normalize(
            to_floats(torch.from_numpy(read_pictures(paths, (self.height, self.width), self.channels)))
        )


@dataclass(frozen=True)
class ImageBatch(Tensors):
    """Normalized images and their classes; after mixup, the probability of each class."""

    images: Float[Tensor, "rows channels height width"]
    labels: Int64[Tensor, " rows"] | Float[Tensor, "rows classes"]
    examples: NDArray[np.int64]  # the index of each in the set

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def source_tokens(self) -> int:
        """Images read."""
        return len(self)

    @property
    def n_targets(self) -> int:
        """Predictions: one an image."""
        return len(self)

    def describe(self) -> str:
        return f"{len(self)} images of {' × '.join(map(str, self.images.shape[1:]))}"


@dataclass(frozen=True)
class ImageData:
    """Images of an ``ImageConfig``. Labels of all three sets count in ``format.classes``."""

    format: ImageFormat
    train: ImageSet
    validation: ImageSet | None
    test: ImageSet | None


def image_batches(
    images: ImageSet, format: ImageFormat, batch_size: int, seed: int, augment: AugmentConfig | None = None
) -> ResumableLoader[Indices, ImageBatch]:
    """Training images in an order drawn from (seed, epoch), varied by numbers drawn from (seed, epoch, position)."""
    config = augment or AugmentConfig()

    def collate(examples: Indices, draw: Draw) -> ImageBatch:
        (pixels, labels), generator = _load(images, examples), draw.generator()
        varied = format.normalize(move(pixels, config, generator))
        if config.erase:
            varied = erase(varied, config.erase, generator)
        if config.mixup:
            mixed, targets = mix(varied, labels, len(format.classes), config.mixup, generator)
            return ImageBatch(mixed, targets, examples)
        return ImageBatch(varied, labels, examples)

    sampler = shuffle(len(images), batch_size)
    settings = [batch_size, seed, format.model_dump(), config.model_dump()]
    return ResumableLoader(sampler, collate, seed, json_digest([images.fingerprint, *settings]))


def ordered_images(images: ImageSet, format: ImageFormat, batch_size: int) -> Iterator[ImageBatch]:
    """Every image once, as it is, in the order of the set: for validation."""
    for start in range(0, len(images), batch_size):
        examples = np.arange(start, min(start + batch_size, len(images)))
        pixels, labels = _load(images, examples)
        yield ImageBatch(format.normalize(pixels), labels, examples)


def prepare_images(config: ImageConfig) -> ImageData:
    """Read all images that ``config`` names; measure their normalization on those of training.

    Raises ``DataError`` for files that cannot be used, other shapes, and classes that training does not have.
    """
    train = read_images(config.train, config.image_size, config.channels)
    height, width, channels = train.pixels.shape[1:]

    def read(name: str, paths: list[str]) -> ImageSet | None:
        return read_images(paths, (height, width), channels).named(train.names, f"data.{name}") if paths else None

    validation, test = read("validation", config.validation), read("test", config.test)
    if config.validation_share:
        train, validation = _hold_out(train, config.validation_share, config.split_seed)
    mean, deviation = measure(train)
    format = ImageFormat(height=height, width=width, classes=list(train.names), mean=mean, deviation=deviation)
    return ImageData(format, train, validation, test)


def measure(images: ImageSet) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel, values from 0 to 1; for a channel of one value 1."""
    channels = images.pixels.shape[3]
    counts = np.zeros((channels, 256), np.int64)
    for start in range(0, len(images), 1024):
        pixels = images.pixels[images.rows[start : start + 1024]]
        for channel in range(channels):
            counts[channel] += np.bincount(pixels[..., channel].ravel(), minlength=256)
    values = np.arange(256) / 255
    mean = counts @ values / counts.sum(1)
    deviation = np.sqrt((counts * (values - mean[:, None]) ** 2).sum(1) / counts.sum(1))
    varied = (counts > 0).sum(1) > 1  # rounding leaves a deviation of 1e-17 to a channel of one value
    return mean.tolist(), np.where(varied, deviation, 1.0).tolist()


def _hold_out(images: ImageSet, share: float, seed: int) -> tuple[ImageSet, ImageSet]:
    """Random images, ``share`` of the set and, to one image, of every class."""
    order = np.random.default_rng(seed).permutation(images.rows)
    order = order[np.argsort(images.labels[order], kind="stable")]
    held = np.diff(np.floor(np.arange(len(order) + 1) * share)) > 0
    if not held.any() or held.all():
        raise DataError(
            f"data.validation_share={share} of {len(images)} training images leaves none on one side; change it"
        )
    train, validation = (replace(images, rows=np.sort(order[chosen])) for chosen in (~held, held))
    if empty := [name for name, count in train.counts().items() if not count]:
        raise DataError(
            f"class {empty[0]!r} has too few training images for data.validation_share={share}; "
            "add some, or give data.validation"
        )
    return train, validation


def _load(
    images: ImageSet, examples: NDArray[np.int64]
) -> tuple[Float[Tensor, "rows channels height width"], Int64[Tensor, " rows"]]:
    rows = images.rows[examples]
    return to_floats(torch.from_numpy(images.pixels[rows])), torch.from_numpy(images.labels[rows])


def to_floats(
    pixels: UInt8[Tensor, "rows height width channels"],
) -> Float[Tensor, "rows channels height width"]:
    """Bytes as values from 0 to 1, channels first."""
    return pixels.permute(0, 3, 1, 2).contiguous().float() / 255
