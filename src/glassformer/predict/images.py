"""Classification of images."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from glassformer.data.images import ImageFormat, to_floats
from glassformer.errors import CheckpointError, DataError
from glassformer.models.registry import summary
from glassformer.models.vit import ViT
from glassformer.predict.loading import LoadedRun
from glassformer.predict.predictor import Prediction, Predictor, predictions
from glassformer.storage.checkpoint import CONFIG
from glassformer.text.arguments import listed
from glassformer.text.errors import TextError

BATCH_SIZE = 64
Picture = str | Path | NDArray[np.uint8]
"""A PNG or JPEG file, or bytes ``[height, width]`` or ``[height, width, channels]``."""


@dataclass(frozen=True, repr=False)
class ImageClassifier(Predictor):
    """A classifier of pictures with all that it must know of them."""

    tasks: ClassVar = ("images",)
    model: ViT
    format: ImageFormat

    def __repr__(self) -> str:
        shape = f"{self.format.height}×{self.format.width} pixels"
        return summary(type(self).__name__, self.model, shape, f"{len(self.labels)} labels", self.path)

    @classmethod
    def _parts(cls, run: LoadedRun) -> dict[str, Any]:
        form = ImageFormat.parse_stored(run.setting("format"), f"{run.path}/{CONFIG}")
        config = run.model.config
        sizes = (form.height, form.width), len(form.mean), len(form.deviation), len(form.classes)
        if sizes != (config.image_size, config.n_channels, config.n_channels, config.n_classes):
            raise CheckpointError(f"{run.path}/{CONFIG}: format does not match the model; restore the original")
        return {"model": run.model, "format": form, "path": run.path}

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.format.classes)

    def classify(self, pictures: Sequence[Picture]) -> list[Prediction]:
        """The class of each. Files are cut and scaled as those of training were; arrays are taken as they are, and
        one of another shape is a ``DataError``."""
        if isinstance(pictures, Path):
            raise DataError(f"pictures is one path, {str(pictures)!r}; give a list, as in [picture]")
        pictures = listed(pictures, "pictures", "picture")
        found: list[Prediction] = []
        for start in range(0, len(pictures), BATCH_SIZE):
            some = pictures[start : start + BATCH_SIZE]
            found += self.predictions(
                torch.stack([self._pixels(start + n, one) for n, one in enumerate(some, start=1)])
            )
        return found

    @torch.inference_mode()
    def predictions(self, images: Float[Tensor, "rows channels height width"]) -> list[Prediction]:
        """Predictions for normalized images."""
        return predictions(self._form(images.to(self.device)), self.labels)

    def _pixels(self, number: int, picture: Any) -> Float[Tensor, "channels height width"]:
        if picture is None:
            raise TextError("picture", number, "is None; give a file, or an array of bytes")
        if isinstance(picture, str | Path):
            return self.format.load([_file(number, picture)])[0]
        pixels, expected = np.asarray(picture), (self.format.height, self.format.width, self.format.channels)
        if pixels.ndim == 2:
            pixels = pixels[..., None]
        if pixels.shape != expected or pixels.dtype != np.uint8:
            raise DataError(
                f"picture {number} is {pixels.dtype} of shape {pixels.shape}; this model reads bytes (uint8) of "
                f"{expected}: height, width, channels"
            )
        return self.format.normalize(to_floats(torch.from_numpy(np.ascontiguousarray(pixels))[None]))[0]


def _file(number: int, picture: str | Path) -> Path:
    if not str(picture).strip():
        raise TextError("picture", number, "has no name; give the path of a PNG or JPEG file")
    path = Path(picture)
    if path.is_dir():
        raise DataError(f"{path}: is a folder; name the pictures in it, as {path}/*")
    if not path.exists():
        raise DataError(f"{path}: no such file; name a PNG or JPEG file that exists")
    return path
