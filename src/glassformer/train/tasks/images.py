"""Naming what is in an image (Dosovitskiy et al. 2021)."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

import torch

from glassformer.data.config import ImageConfig
from glassformer.data.images import ImageBatch, image_batches, ordered_images, prepare_images
from glassformer.models.vit import ViT, ViTConfig
from glassformer.train.config import AccuracyValidation, PlainTrainConfig, RunConfig
from glassformer.train.loss import Loss, class_loss
from glassformer.train.task import CheckpointMetadata, Message, Report, SourceCheckpoint, sized_by_data
from glassformer.train.tasks.encoder import naming_scores


class ImageRun(RunConfig):
    """Configuration of image classification; shape and classes of the images belong to the data."""

    task: Literal["images"] = "images"
    model: ViTConfig = ViTConfig()
    data: ImageConfig
    train: PlainTrainConfig = PlainTrainConfig()
    validation: AccuracyValidation = AccuracyValidation()


class ImageClassification:
    """Labeled images read, normalized by what training images are, and varied as the configuration says."""

    unit = "images"

    def __init__(self, config: ImageRun, origin: SourceCheckpoint | None = None):
        self.config = config
        data = prepare_images(config.data)
        self.format, self._held_out = data.format, data.validation
        held = "" if data.validation is None else f", {len(data.validation):,} for validation"
        shape = f"{data.format.height} × {data.format.width} × {data.format.channels}"
        self.accounts: Sequence[Report] = [
            Message(f"{len(data.train):,} images of {shape} in {len(data.format.classes)} classes{held}")
        ]
        self.batches = image_batches(
            data.train, data.format, config.data.batch_size, config.train.seed, config.data.augment
        )

    @property
    def limit(self) -> str:
        return f"data.batch_size={self.config.data.batch_size}"

    @property
    def validates(self) -> bool:
        return self._held_out is not None

    def new_model(self) -> ViT:
        return ViT(self._model_config)

    def loss(self, model: ViT, batch: ImageBatch) -> Loss:
        hidden = model.class_tokens(batch.images)  # forward() computes the patches too
        return class_loss(model.output_projection, hidden, batch.labels, self.config.train.label_smoothing)

    @torch.inference_mode()
    def validate(self, model: ViT) -> dict[str, float]:
        assert self._held_out is not None
        device = model.output_projection.weight.device
        ordered = ordered_images(self._held_out, self.format, self.config.data.batch_size)
        batches = (batch.to(device) for batch in ordered)
        return naming_scores((model(batch.images), batch.labels) for batch in batches)

    def metadata(self) -> CheckpointMetadata:
        return CheckpointMetadata({"format": self.format.model_dump(mode="json")})

    def texts(self, batch: ImageBatch) -> list[Any]:
        return batch.examples.tolist()

    @cached_property
    def _model_config(self) -> ViTConfig:
        """Model configuration with the shape and classes of the images; other settings are refused."""
        format = self.format
        sizes = {
            "image_size": (format.height, format.width),
            "n_channels": format.channels,
            "n_classes": len(format.classes),
        }
        return ViTConfig.parse(sized_by_data(self.config.model, sizes, "images"), "model")
