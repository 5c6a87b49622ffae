"""Classification of images: how their pixels become numbers is beside the model, in ``preprocessor_config.json``."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.data.images import ImageFormat, to_floats
from glassformer.errors import CheckpointError, DataError
from glassformer.interop.parity import TOLERANCES, Logits, ParityInputs, Sample
from glassformer.interop.tasks.conversion import names_of, with_names
from glassformer.interop.tokenizer_json import read_json
from glassformer.interop.transformers_api import loaded_processor, quiet
from glassformer.predict.loading import LoadedRun

PROCESSOR = "preprocessor_config.json"
BICUBIC = 3
"""As Pillow numbers its filters."""


class ImageConversion:
    """Pictures of the model's own size are the same numbers on both sides; others are scaled otherwise."""

    loader = "AutoModelForImageClassification"
    generation: ClassVar[dict[str, Any]] = {}

    def read(self, folder: Path, theirs: dict[str, Any], config: Any) -> tuple[dict[str, Any], None]:
        if not (folder / PROCESSOR).is_file():
            raise CheckpointError(f"{folder}: has no {PROCESSOR}, which says how pixels become numbers; copy it too")
        mean, deviation = _normalization(read_json(folder / PROCESSOR), config.n_channels)
        height, width = config.image_size
        sizes = {"height": height, "width": width, "classes": names_of(theirs)}
        format = ImageFormat.parse({**sizes, "mean": mean, "deviation": deviation}, f"{folder}/{PROCESSOR}")
        return {"task": "images", "format": format.model_dump(mode="json")}, None

    def settings(self, held: LoadedRun) -> dict[str, Any]:
        return with_names(_format(held).classes)

    def write(self, folder: Path, held: LoadedRun) -> list[str]:
        format = _format(held)
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
        (folder / PROCESSOR).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        return ["pictures of other proportions are squeezed there, and cut to the proportions of the model here"]

    def inputs(self, held: LoadedRun) -> ParityInputs:
        c, generator = held.model.config, torch.Generator().manual_seed(1)
        images = torch.randn(3, c.n_channels, *c.image_size, generator=generator)
        return ParityInputs((images.to(held.model.output_projection.weight.dtype),))

    def logits(self, model: Any) -> Logits:
        return lambda images: model(images)

    def their_logits(self, theirs: Any) -> Logits:
        def logits(images: Tensor) -> Tensor:
            found: Tensor = theirs(pixel_values=images).logits
            return found

        return logits

    @torch.inference_mode()
    def samples(self, held: LoadedRun, theirs: Any, folder: Path, texts: Sequence[str] | None) -> list[Sample]:
        """A picture of noise, from its bytes; theirs reads such of one channel and of three."""
        if texts is not None:
            raise DataError("texts are compared where a model reads text, and this one reads images; leave them out")
        format = _format(held)
        if format.channels not in (1, 3):
            return []
        shape = (format.height, format.width, format.channels)
        pixels = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
        ours, found = format.normalize(to_floats(torch.from_numpy(pixels)[None])), _processed(folder, pixels)
        if ours.shape != found.shape or not float((ours - found).abs().max()) <= TOLERANCES["float32"]:
            raise CheckpointError(f"{folder}: {PROCESSOR} makes other numbers of a picture; nothing was written")
        sides = (self.logits(held.model)(ours.double()), self.their_logits(theirs)(found.double()))
        return [Sample("a random picture", *(format.classes[int(logits.argmax())] for logits in sides))]


def _processed(folder: Path, pixels: NDArray[np.uint8]) -> Tensor:
    """By their processor; pixels of so few rows do not tell on which axis the channels are."""
    with quiet():
        found = loaded_processor(folder)(
            pixels.transpose(2, 0, 1), return_tensors="np", input_data_format="channels_first"
        )
    return torch.as_tensor(np.asarray(found["pixel_values"]))


def _format(held: LoadedRun) -> ImageFormat:
    return ImageFormat.parse(held.setting("format"), "config.json")


def _normalization(settings: dict[str, Any], channels: int) -> tuple[list[float], list[float]]:
    """Mean and deviation by channel, of values from 0 to 1."""
    factor = settings.get("rescale_factor", 1 / 255)
    if not settings.get("do_rescale", True) or abs(factor * 255 - 1) > 1e-6:
        raise CheckpointError(
            f"{PROCESSOR}: do_rescale={settings.get('do_rescale')}, rescale_factor={factor}: pixels go from 0 to 1 "
            "here (1/255); choose a model where they do"
        )
    if not settings.get("do_normalize", True):
        return [0.0] * channels, [1.0] * channels
    found = []
    for name in ("image_mean", "image_std"):
        value = settings.get(name, 0.5)  # what their class for this model has
        values = [float(value)] * channels if isinstance(value, int | float) else [float(one) for one in value]
        if len(values) != channels:
            raise CheckpointError(f"{PROCESSOR}: {name}={value} is not one number for each of {channels} channels")
        found.append(values)
    return found[0], found[1]


IMAGES = ImageConversion()
