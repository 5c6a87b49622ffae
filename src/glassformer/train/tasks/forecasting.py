"""Forecasting: what comes after a stretch of several series (Nie et al. 2023, arXiv:2211.14730)."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from glassformer.data.config import SeriesDataConfig
from glassformer.data.time_series import PARTS, Part, SeriesBatch, prepare_series, series_batches
from glassformer.metrics.forecast import forecast_errors
from glassformer.models.series import SeriesConfig, SeriesModel
from glassformer.train.config import RunConfig, TrainConfig, ValidationConfig
from glassformer.train.loss import Loss
from glassformer.train.task import CheckpointMetadata, Message, Report, SourceCheckpoint, sized_by_data


class ForecastingTrainConfig(TrainConfig):
    """Length and precision of training. Steps are absolute: a resumed run ends where an uninterrupted one would."""

    label_smoothing: float = Field(0.0, ge=0, le=0, description="there are no labels to smooth")
    loss: Literal["mse", "mae"] = Field("mse", description="squared or absolute error, of standardized values")


class ForecastingValidation(ValidationConfig):
    """Validation by the errors of forecasts of the validation rows."""

    metric: Literal["mse", "mae"] = "mse"
    """Chooses the best checkpoint and stops the run."""


class ForecastingRun(RunConfig):
    """Configuration of forecasting; context and horizon belong to the data."""

    task: Literal["forecasting"] = "forecasting"
    model: SeriesConfig = SeriesConfig()
    data: SeriesDataConfig
    train: ForecastingTrainConfig = ForecastingTrainConfig()
    validation: ForecastingValidation = ForecastingValidation()


class Forecasting:
    """A table of numbers over time, standardized by its training rows, as windows."""

    unit = "values"

    def __init__(self, config: ForecastingRun, origin: SourceCheckpoint | None = None):
        self.config = config
        self.series = prepare_series(config.data)
        windows = ", ".join(f"{len(self.series.windows(part)):,} for {part}" for part in PARTS)
        shape = f"{len(self.series.values):,} rows × {len(self.series.format.columns)} variables"
        known = self.series.known
        gaps = "" if known is None else f"; {np.count_nonzero(~known):,} missing values are the previous ones again"
        self.accounts: Sequence[Report] = [Message(f"{config.data.file}: {shape}; windows: {windows}{gaps}")]
        self.batches = series_batches(self.series, config.data.batch_size, config.train.seed)

    @property
    def limit(self) -> str:
        return f"data.batch_size={self.config.data.batch_size}"

    @property
    def validates(self) -> bool:
        return len(self.series.windows("validation")) > 0

    def new_model(self) -> SeriesModel:
        return SeriesModel(self._model_config)

    def loss(self, model: SeriesModel, batch: SeriesBatch) -> Loss:
        error = model(batch.context) - batch.future
        error = torch.where(batch.future.isnan(), 0.0, error)  # what is missing was no answer
        return Loss((error.square() if self.config.train.loss == "mse" else error.abs()).sum(), None)

    def validate(self, model: SeriesModel) -> dict[str, float]:
        return self.errors(model, "validation")

    @torch.inference_mode()
    def errors(self, model: SeriesModel, part: Part) -> dict[str, float]:
        """Errors over every window of ``part``, of standardized values."""
        found = forecast_errors(self._forecasts(model, part))
        return {"mse": found.mse, "mae": found.mae}

    def metadata(self) -> CheckpointMetadata:
        return CheckpointMetadata({"format": self.series.format.model_dump(mode="json")})

    def texts(self, batch: SeriesBatch) -> list[Any]:
        return batch.examples.tolist()

    def _forecasts(self, model: SeriesModel, part: Part) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self.series.ordered(part, 4 * self.config.data.batch_size):
            batch = batch.to(model.forecast.weight.device)
            yield model(batch.context), batch.future

    @cached_property
    def _model_config(self) -> SeriesConfig:
        """Model configuration with the context, horizon and variables of the data; other settings are refused."""
        data = self.config.data
        sizes = {"context": data.context, "horizon": data.horizon, "n_variables": len(self.series.format.columns)}
        return SeriesConfig.parse(sized_by_data(self.config.model, sizes, "data"), "model")
