"""Image classification; ``preprocessor_config.json`` describes the normalization of pixels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.data.images import ImageFormat, to_floats
from glassformer.errors import CheckpointError, DataError
from glassformer.interop.folder import read_json, write_json
from glassformer.interop.parity import TOLERANCES, Logits, ParityInputs, Sample
from glassformer.interop.tasks.conversion import export_labels, import_labels
from glassformer.interop.transformers_api import load_processor, quiet
from glassformer.predict.loading import LoadedRun

PROCESSOR = "preprocessor_config.json"
BICUBIC = 3
"""Number of the filter in Pillow."""


class ImageConversion:
    """Conversion of an image classifier; only images that need no resizing are equal on both sides."""

    loader = "AutoModelForImageClassification"
    generation: ClassVar[dict[str, Any]] = {}

    def read(self, folder: Path, their_config: dict[str, Any], config: Any) -> tuple[dict[str, Any], None]:
        if not (folder / PROCESSOR).is_file():
            raise CheckpointError(f"{folder}: has no {PROCESSOR}, which says how pixels become numbers; copy it too")
        mean, std = _normalization(read_json(folder / PROCESSOR), config.n_channels)
        height, width = config.image_size
        sizes = {"height": height, "width": width, "classes": import_labels(their_config)}
        format = ImageFormat.parse({**sizes, "mean": mean, "deviation": std}, f"{folder}/{PROCESSOR}")
        return {"task": "images", "format": format.model_dump(mode="json")}, None

    def settings(self, run: LoadedRun) -> dict[str, Any]:
        return export_labels(_format(run).classes)

    def write(self, folder: Path, run: LoadedRun) -> list[str]:
        format = _format(run)
        document = {
            "image_processor_type": "ViTImageProcessor",
            "do_resize": True,
            "size": {"height": format.height, "width": format.width},
            "resample": BICUBIC,
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": format.mean,
            "image_std": format.deviation,
            "do_convert_rgb": format.channels == 3,
        }
        write_json(folder / PROCESSOR, document)
        return ["pictures of other proportions are squeezed there, and cut to the proportions of the model here"]

    def inputs(self, run: LoadedRun) -> ParityInputs:
        c, generator = run.model.config, torch.Generator().manual_seed(1)
        images = torch.randn(3, c.n_channels, *c.image_size, generator=generator)
        return ParityInputs((images.to(run.model.output_projection.weight.dtype),))

    def logits(self, model: Any) -> Logits:
        return lambda images: model(images)

    def their_logits(self, their_model: Any) -> Logits:
        return lambda images: their_model(pixel_values=images).logits

    @torch.inference_mode()
    def samples(self, run: LoadedRun, their_model: Any, folder: Path, texts: Sequence[str] | None) -> list[Sample]:
        """Outputs for a random image; their processor reads bytes of one or three channels only."""
        if texts is not None:
            raise DataError("texts are compared where a model reads text, and this one reads images; leave them out")
        format = _format(run)
        if format.channels not in (1, 3):
            return []
        shape = (format.height, format.width, format.channels)
        pixels = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
        our_pixels, their_pixels = (
            format.normalize(to_floats(torch.from_numpy(pixels)[None])),
            _processed(folder, pixels),
        )
        if (
            our_pixels.shape != their_pixels.shape
            or not float((our_pixels - their_pixels).abs().max()) <= TOLERANCES["float32"]
        ):
            raise CheckpointError(f"{folder}: {PROCESSOR} makes other numbers of a picture; nothing was written")
        sides = (self.logits(run.model)(our_pixels.double()), self.their_logits(their_model)(their_pixels.double()))
        return [Sample("a random picture", *(format.classes[int(logits.argmax())] for logits in sides))]


def _processed(folder: Path, pixels: NDArray[np.uint8]) -> Tensor:
    """Normalize with their processor, which cannot infer the channel axis of such small images."""
    with quiet():
        batch = load_processor(folder)(
            pixels.transpose(2, 0, 1), return_tensors="np", input_data_format="channels_first"
        )
    return torch.as_tensor(np.asarray(batch["pixel_values"]))


def _format(run: LoadedRun) -> ImageFormat:
    return ImageFormat.parse(run.setting("format"), "config.json")


def _normalization(settings: dict[str, Any], channels: int) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel, for values from 0 to 1."""
    factor = settings.get("rescale_factor", 1 / 255)
    if not settings.get("do_rescale", True) or abs(factor * 255 - 1) > 1e-6:
        raise CheckpointError(
            f"{PROCESSOR}: do_rescale={settings.get('do_rescale')}, rescale_factor={factor}: pixels go from 0 to 1 "
            "here (1/255); choose a model where they do"
        )
    if not settings.get("do_normalize", True):
        return [0.0] * channels, [1.0] * channels
    statistics = []
    for name in ("image_mean", "image_std"):
        value = settings.get(name, 0.5)  # default of their class
        values = [float(value)] * channels if isinstance(value, int | float) else [float(one) for one in value]
        if len(values) != channels:
            raise CheckpointError(f"{PROCESSOR}: {name}={value} is not one number for each of {channels} channels")
        statistics.append(values)
    return statistics[0], statistics[1]


IMAGES = ImageConversion()
