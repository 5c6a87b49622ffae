"""Time series as batches: the parts of a table, its standardized values, and windows of them."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from glassformer.config import Config
from glassformer.data.config import SeriesDataConfig
from glassformer.data.loader import Draw, ResumableLoader, Tensors
from glassformer.data.sampling import Indices, shuffle
from glassformer.data.series_table import LARGEST, Table, read_table
from glassformer.data.token_store import json_digest
from glassformer.errors import DataError

Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")


class SeriesFormat(Config):
    """Variables of the series that a model was trained on, and their scale, measured on training rows."""

    columns: list[str] = Field(min_length=1, description="the variables, in order")
    mean: list[float] = Field(min_length=1, description="of each variable over the rows for training")
    deviation: list[float] = Field(min_length=1, description="standard, of each variable, likewise; 0 counts as 1")

    def standardize(self, values: Float[np.ndarray, "*rows variables"]) -> Float[np.ndarray, "*rows variables"]:
        """(x - mean) / deviation by variable."""
        return (values - np.array(self.mean)) / np.array(self.deviation)

    def standardize_table(self, path: str, table: Table) -> Float32[np.ndarray, "rows variables"]:
        """The standardized values of a table; ``DataError`` names a cell that float32 cannot represent."""
        values = self.standardize(table.values)
        if (beyond := np.argwhere(np.abs(values) > LARGEST)).size:
            row, column = beyond[0]
            raise DataError(
                f"{path}, line {table.lines[row]}, column {table.columns[column]}: {table.values[row, column]:g} is "
                f"{np.abs(values[row, column]):.0e} standard deviations from the mean of the training rows, more than "
                "float32 can represent; fix it"
            )
        return values.astype(np.float32)

    def restore(self, values: Float[np.ndarray, "*rows variables"]) -> Float[np.ndarray, "*rows variables"]:
        """The inverse of ``standardize``: values in their own units."""
        return values * np.array(self.deviation) + np.array(self.mean)


@dataclass(frozen=True)
class SeriesBatch(Tensors):
    """Windows of standardized values."""

    context: Float32[Tensor, "rows time variables"]
    future: Float32[Tensor, "rows horizon variables"]  # NaN: missing in the table
    examples: NDArray[np.int64]  # the row of the series in which each window begins

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def source_tokens(self) -> int:
        """Values read."""
        return self.context.numel()

    @property
    def n_targets(self) -> int:
        """Values predicted that are known."""
        return int(self.future.isfinite().sum())

    def describe(self) -> str:
        time, variables = self.context.shape[1:]
        return f"{len(self)} windows of {time} + {self.future.shape[1]} rows × {variables} variables"


@dataclass(frozen=True)
class Series:
    """Standardized values and which rows are for what."""

    values: Float32[np.ndarray, "rows variables"]
    format: SeriesFormat
    bounds: tuple[int, int, int, int]  # the rows at which the parts begin, and at which the last one ends
    context: int
    horizon: int
    known: Bool[np.ndarray, "rows variables"] | None = None  # False: missing in the table; None: nothing is

    def windows(self, part: Part) -> NDArray[np.int64]:
        """The row in which each window begins whose future lies in ``part``, at every row (stride 1).

        Contexts of training windows lie in their part too; others may reach into the parts before. A window of whose
        future nothing is known is left out.
        """
        number = PARTS.index(part)
        start, stop = self.bounds[number], self.bounds[number + 1]
        begins = np.arange(max(start - self.context, 0), max(stop - self.context - self.horizon + 1, 0))
        if self.known is None:
            return begins
        known_before = np.concatenate(([0], self.known.any(axis=1).cumsum()))
        futures = begins + self.context
        return begins[known_before[futures + self.horizon] > known_before[futures]]

    def batch(self, windows: NDArray[np.int64]) -> SeriesBatch:
        """The windows that begin in these rows."""
        both = sliding_window_view(self.values, self.context + self.horizon, axis=0)[windows].swapaxes(1, 2)
        context, future = (np.ascontiguousarray(side) for side in np.split(both, [self.context], axis=1))
        if self.known is not None:
            known = sliding_window_view(self.known, self.horizon, axis=0)[windows + self.context].swapaxes(1, 2)
            future = np.where(known, future, np.float32(np.nan))
        return SeriesBatch(torch.from_numpy(context), torch.from_numpy(future), windows)

    def ordered(self, part: Part, batch_size: int) -> Iterator[SeriesBatch]:
        """Every window of ``part`` once, in order of time, the last few as well: for validation and test."""
        windows = self.windows(part)
        for start in range(0, len(windows), batch_size):
            yield self.batch(windows[start : start + batch_size])

    @property
    def fingerprint(self) -> str:
        """SHA-256 over values, variables, parts and the size of windows; the name of the file does not enter."""
        made_from = [self.format.model_dump(), self.bounds, self.context, self.horizon]
        digest = hashlib.sha256(json.dumps(made_from).encode())
        digest.update(self.values.astype("<f4").tobytes())
        if self.known is not None:
            digest.update(np.packbits(self.known).tobytes())
        return digest.hexdigest()


def series_batches(series: Series, batch_size: int, seed: int) -> ResumableLoader[Indices, SeriesBatch]:
    """The training windows of a series, in an order drawn from (seed, epoch)."""
    windows = series.windows("train")

    def collate(examples: Indices, _: Draw) -> SeriesBatch:
        return series.batch(windows[examples])

    sampler = shuffle(len(windows), batch_size)
    return ResumableLoader(sampler, collate, seed, json_digest([series.fingerprint, batch_size, seed]))


def prepare_series(config: SeriesDataConfig) -> Series:
    """Read the table, part it, standardize it with mean and deviation of the rows for training alone.

    Raises ``DataError`` for a table that cannot be used, and for a part in which no window fits.
    """
    table = read_table(config.file, config.date, config.columns, config.missing)
    bounds = _bounds(config, len(table.values))
    train = table.values[: bounds[1]]
    # Not by the deviation: that of a column of 0.1 is 1e-17, by which all that differs would be divided.
    scale = np.where(np.ptp(train, axis=0) > 0, train.std(axis=0), 1.0)
    format = SeriesFormat(columns=list(table.columns), mean=train.mean(axis=0).tolist(), deviation=scale.tolist())
    values = format.standardize_table(config.file, table)
    known = None if table.known.all() else table.known
    series = Series(values, format, bounds, config.context, config.horizon, known)
    for number, part in enumerate(PARTS):
        rows = bounds[number + 1] - bounds[number]
        needed = config.horizon + (config.context if part == "train" else 0)
        if rows and not len(series.windows(part)):
            raise DataError(
                f"the {rows} rows for {part} hold no window of {needed}",
                where=config.file,
                setting="data.split",
                advice="lower data.context or data.horizon, or give the part more of data.split",
            )
    return series


def _bounds(config: SeriesDataConfig, n_rows: int) -> tuple[int, int, int, int]:
    if config.in_shares:
        ends = [int(sum(config.split[: part + 1]) * n_rows + 1e-6) for part in range(3)]
    else:
        ends = [int(sum(config.split[: part + 1])) for part in range(3)]
    if ends[-1] > n_rows:
        raise DataError(
            f"has {n_rows} rows, and the split asks for {ends[-1]}",
            where=config.file,
            setting="data.split",
            advice=f"lower data.split={list(config.split)}",
        )
    if not ends[0]:
        raise DataError(f"{config.file}: has {n_rows} rows, too few to have one for training; give more")
    return 0, ends[0], ends[1], ends[2]
