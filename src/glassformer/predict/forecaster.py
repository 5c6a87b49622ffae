"""Forecasts of the rows that follow a table, in its units."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64
from torch import Tensor

from glassformer.data.config import Missing
from glassformer.data.series_table import read_table
from glassformer.data.time_series import Series, SeriesFormat
from glassformer.errors import DataError
from glassformer.metrics.forecast import ForecastErrors, forecast_errors
from glassformer.models.registry import summary
from glassformer.models.series import SeriesModel
from glassformer.predict.loading import LoadedRun
from glassformer.predict.predictor import Predictor
from glassformer.storage.regular_files import display_name

BATCH_SIZE = 128
DATES = (
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d",
    "%Y-%m",
)


@dataclass(frozen=True)
class Forecast:
    """``values[step]`` of each of ``columns``; ``dates`` go on as those of the table did, and are empty where they
    cannot. ``header`` is the table's, as it stood there."""

    columns: tuple[str, ...]
    values: Float64[np.ndarray, "horizon variables"]
    header: tuple[str, ...]
    date: str
    dates: tuple[str, ...]

    def rows(self) -> list[list[str]]:
        """Cells in the order of the header, which comes first; columns without a forecast are omitted."""
        known = {column: [f"{value:.9g}" for value in self.values[:, n]] for n, column in enumerate(self.columns)}
        if self.date:
            known[self.date] = list(self.dates or [""] * len(self.values))
        names = [name for name in self.header if name in known]
        return [names, *([known[name][step] for name in names] for step in range(len(self.values)))]


@dataclass(frozen=True, repr=False)
class Forecaster(Predictor):
    """A model of series with the variables, and their scale, that it was trained on."""

    tasks: ClassVar = ("forecasting",)
    model: SeriesModel
    format: SeriesFormat

    def __repr__(self) -> str:
        steps = f"{self.model.config.context} steps to {self.model.config.horizon}"
        return summary(type(self).__name__, self.model, f"{len(self.format.columns)} variables", steps, self.path)

    @classmethod
    def _parts(cls, run: LoadedRun) -> dict[str, Any]:
        form = SeriesFormat.parse_stored(run.setting("format"), f"{run.path}/config.json")
        return {"model": run.model, "format": form, "path": run.path}

    def forecast_file(
        self, path: str, date: str | None = None, missing: Missing = "refuse", max_line_bytes: int | None = None
    ) -> Forecast:
        """Forecast the rows after a CSV file of at least ``context`` rows.

        ``date`` is the column of dates, empty for none; when not given ``date``, or else the only further column.
        With ``max_line_bytes``, ``path`` may be a pipe, or ``-`` for standard input, and a line has at most as many
        bytes.
        """
        table = read_table(path, date, self.format.columns, missing, max_line_bytes)
        path = display_name(path)
        if len(table.values) < self.model.config.context:
            raise DataError(
                f"{path}: has {len(table.values)} rows, but the model reads context={self.model.config.context}; "
                f"provide {self.model.config.context} or more"
            )
        values = self._forecast(self.format.standardize_table(path, table)[None, -self.model.config.context :])[0]
        return Forecast(table.columns, values, table.header, table.date, continue_dates(table.dates, len(values)))

    @torch.inference_mode()
    def forecast(
        self, tables: Float[np.ndarray, "tables context variables"]
    ) -> Float64[np.ndarray, "tables horizon variables"]:
        """Forecast the rows after each window of ``context`` rows, in their units."""
        if not isinstance(tables, np.ndarray) or tables.ndim != 3:
            shape = f" of shape {tables.shape}" if isinstance(tables, np.ndarray) else ""
            kind = "None" if tables is None else f"of type {type(tables).__name__}"
            raise DataError(f"tables is {kind}{shape}; give one array [tables, context, variables]")
        if tables.shape[2] != len(self.format.columns):
            raise DataError(
                f"tables have {tables.shape[2]} variables; give the {len(self.format.columns)} of training, in order: "
                f"{', '.join(self.format.columns)}"
            )
        with np.errstate(over="ignore"):  # an overflow is refused below
            return self._forecast(self.format.standardize(tables).astype(np.float32))

    def errors_in_file(
        self, path: str, date: str | None = None, missing: Missing = "refuse", max_line_bytes: int | None = None
    ) -> ForecastErrors:
        """MSE and MAE, of standardized values that are known, of every window in a CSV file."""
        table = read_table(path, date, self.format.columns, missing, max_line_bytes)
        config, rows = self.model.config, len(table.values)
        if rows < config.context + config.horizon:
            raise DataError(
                f"{path}: has {rows} rows, but a window has {config.context} + {config.horizon}; "
                f"provide {config.context + config.horizon} or more"
            )
        values = self.format.standardize_table(path, table)
        bounds = (0, 0, 0, rows)
        return self.errors(Series(values, self.format, bounds, config.context, config.horizon, table.known))

    @torch.inference_mode()
    def _forecast(
        self, standard: Float32[np.ndarray, "tables context variables"]
    ) -> Float64[np.ndarray, "tables horizon variables"]:
        """Forecast from standardized rows, in the original units."""
        model = self._form
        found = [model(part.to(self.device)).cpu() for part in torch.from_numpy(standard).split(BATCH_SIZE)]
        forecast = torch.cat(found).double().numpy()
        if not np.isfinite(forecast).all():
            raise DataError(
                f"the forecast is not a finite number: a value is {np.abs(standard).max():.0e} standard deviations of "
                "the training rows from their mean; correct the table, or train on such rows"
            )
        return self.format.restore(forecast)

    @torch.inference_mode()
    def errors(self, series: Series) -> ForecastErrors:
        """Errors of every window of the test part."""
        if series.format.columns != self.format.columns:
            raise DataError(f"the series has {series.format.columns}, and the model {self.format.columns}; give these")

        def of(context: Tensor) -> Tensor:
            found: Tensor = self._form(context.to(self.device))
            return found.cpu()

        return forecast_errors((of(one.context), one.future) for one in series.ordered("test", BATCH_SIZE))


def continue_dates(cells: Sequence[str], count: int) -> tuple[str, ...]:
    """The ``count`` dates after the last of ``cells``, written as it is; none where they are not regular.

    Some dates of a table may be left out; the smallest step continues.
    """
    if len(cells) < 2:
        return ()
    with suppress(ValueError):
        numbers = [int(cell) for cell in cells]
        step = min(b - a for a, b in pairwise(numbers))
        return tuple(str(numbers[-1] + step * n) for n in range(1, count + 1))
    for form in DATES:
        with suppress(ValueError):
            moments = [datetime.strptime(cell, form) for cell in cells]
            if [moment.strftime(form) for moment in moments[-2:]] != list(cells[-2:]):
                return ()  # written otherwise, as 2016-7-1
            return _moments(moments, form, count)
    return ()


def _moments(moments: Sequence[datetime], form: str, count: int) -> tuple[str, ...]:
    months = [12 * moment.year + moment.month for moment in moments]
    between = {b - a for a, b in pairwise(months)}
    same_day = len({(moment.day, moment.hour, moment.minute, moment.second) for moment in moments}) == 1
    last = moments[-1]
    if same_day and min(between) > 0 and last.day <= 28:
        after = [months[-1] + min(between) * n for n in range(1, count + 1)]
        dates = [last.replace(year=(month - 1) // 12, month=(month - 1) % 12 + 1) for month in after]
        return tuple(moment.strftime(form) for moment in dates)
    steps = [b - a for a, b in pairwise(moments)]
    if any(step % min(steps) for step in steps):
        return ()  # the ends of months, say
    return tuple((last + min(steps) * n).strftime(form) for n in range(1, count + 1))
