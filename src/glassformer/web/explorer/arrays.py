"""Models of images and of series in the explorer: their inputs are numbered.

Files of the command line come first, then the run's own validation data, where its configuration finds them.
"""

import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.data.config import ImageConfig, SeriesDataConfig
from glassformer.data.image_files import ImageSet, read_images
from glassformer.data.images import ImageFormat, prepare_images, to_floats
from glassformer.data.series_table import read_table
from glassformer.data.time_series import Series, SeriesFormat, prepare_series
from glassformer.errors import DataError, GlassformerError
from glassformer.explain.example import Example
from glassformer.explain.examples.arrays import examine_image, examine_pixels, examine_series
from glassformer.predict.loading import LoadedRun
from glassformer.storage.checkpoint import CONFIG
from glassformer.taps import Edit
from glassformer.web.explorer.selection import Selection

CONFIG_FILE = "config.toml"


@dataclass(frozen=True)
class NumberField:
    """The field of the bar that chooses an input, and the variables among which a series has one to choose."""

    title: str
    count: int
    variables: tuple[str, ...] = ()


class Numbered(ABC):
    """A model of numbered inputs: a selection has a number as its source, and no text."""

    translates = False
    run: LoadedRun
    folder: Path
    files: tuple[Path, ...]
    read_once = ("validation", "series", "windows", "tables")
    """Properties that have read files."""

    @property
    def model(self) -> Any:
        return self.run.model

    @property
    @abstractmethod
    def format(self) -> ImageFormat | SeriesFormat:
        """The format of the inputs that the model reads."""

    def share_data(self, others: Iterable[object]) -> None:
        """Take what a model of the same data has read, such as another checkpoint, instead of reading it again."""
        for one in others:
            if type(one) is type(self) and isinstance(one, Numbered) and one is not self and self._reads_the_same(one):
                for name in self.read_once:
                    if name in vars(one):
                        vars(self).setdefault(name, vars(one)[name])

    def _reads_the_same(self, other: "Numbered") -> bool:
        with suppress(DataError):
            same = self.files == other.files and self.format == other.format
            return same and _data_of(self.folder) == _data_of(other.folder)
        return False

    @property
    @abstractmethod
    def field(self) -> NumberField:
        """The field of the bar that chooses an input."""

    def output(self, selection: Selection) -> str:
        return ""

    def lengths(self, selection: Selection) -> list[tuple[int, int]]:
        """(tokens, most): every input has the length that the model reads."""
        return []

    def knows(self, text: str) -> bool:
        return True

    def choose(self, selection: Selection, notes: list[str]) -> Selection:
        """The selection with the nearest input that there is; ``notes`` gets a line for each change."""
        field, text = self.field, selection.source.strip()
        number = 0
        if text.isdecimal() and text.isascii() and len(text) < 10:
            number = min(int(text), field.count - 1)
            if number != int(text):
                notes.append(f"{field.title} {int(text):,} is outside 0 to {field.count - 1:,}; this is {number:,}.")
        elif text:
            notes.append(f"{text[:40]!r} is no number of an input; this is {field.title} 0.")
        variable = selection.target
        if variable and variable not in field.variables and field.variables:
            notes.append(f"There is no variable {variable[:40]!r}; this is {field.variables[0]}.")
        if variable not in field.variables:
            variable = field.variables[0] if field.variables else ""
        return replace(selection, source=str(number), target=variable, mode="beam")


@dataclass(frozen=True)
class ExploredImages(Numbered):
    """A Vision Transformer, and pictures to look at."""

    run: LoadedRun
    folder: Path
    files: tuple[Path, ...] = ()

    @cached_property
    def format(self) -> ImageFormat:
        return ImageFormat.parse_stored(self.run.setting("format"), f"{self.run.path}/{CONFIG}")

    @property
    def field(self) -> NumberField:
        count = len(self.files) + (0 if self.validation is None else len(self.validation))
        return NumberField("image", count)

    @cached_property
    def validation(self) -> ImageSet | None:
        """Validation images of the run; None if they are not here and files are. ``DataError`` if nothing is."""
        try:
            config = ImageConfig.parse(_data_of(self.folder), "data")
            if config.validation:
                size = self.format.height, self.format.width
                found: ImageSet | None = read_images(config.validation, size, self.format.channels)
                assert found is not None
                return found.named(self.format.classes, "data.validation")
            data = prepare_images(config)
            same = ("height", "width", "channels", "classes")
            if any(getattr(data.format, name) != getattr(self.format, name) for name in same):
                raise DataError("the images have another shape or other classes than those of the training")
            found = data.validation
        except (GlassformerError, OSError) as error:
            _require_files(self.files, "images", error)
            return None
        if found is None:
            _require_files(self.files, "images", "its configuration names none")
        return found

    def example(self, selection: Selection, output: str, edits: Mapping[str, Edit] | None, keep: str = "*") -> Example:
        number = int(selection.source)
        if number < len(self.files):
            return examine_image(self.model, self.format, self.files[number], keep, edits)
        assert self.validation is not None
        number -= len(self.files)
        pixels = np.array(self.validation.pixels[self.validation.rows[number]])  # a copy, not mapped into memory
        image = self.format.normalize(to_floats(torch.from_numpy(pixels)[None]))
        return examine_pixels(self.model, self.format, image, f"validation image {number:,}", keep, edits)

    def truth(self, selection: Selection) -> str:
        """Class of the image in the data; empty if it is not known."""
        number = int(selection.source) - len(self.files)
        if number < 0 or self.validation is None:
            return ""
        return self.validation.names[int(self.validation.labels[self.validation.rows[number]])]


@dataclass(frozen=True)
class ExploredSeries(Numbered):
    """A model of series, and windows of a table; one variable is looked at, since each is forecast for itself."""

    run: LoadedRun
    folder: Path
    files: tuple[Path, ...] = ()

    @cached_property
    def format(self) -> SeriesFormat:
        return SeriesFormat.parse_stored(self.run.setting("format"), f"{self.run.path}/{CONFIG}")

    @property
    def field(self) -> NumberField:
        return NumberField("window", len(self.files) + len(self.windows), tuple(self.format.columns))

    @cached_property
    def series(self) -> Series | None:
        """The table of the run; None if it is not here and files are. ``DataError`` if nothing is."""
        try:
            series = prepare_series(SeriesDataConfig.parse(_data_of(self.folder), "data"))
            if series.format.columns != self.format.columns:
                raise DataError("the table has other columns than that of the training")
            return series
        except (GlassformerError, OSError) as error:
            _require_files(self.files, "table", error)
            return None

    @cached_property
    def windows(self) -> NDArray[np.int64]:
        """Rows in which the windows of the validation rows begin; those of the test rows if there are none."""
        if self.series is None:
            return np.zeros(0, np.int64)
        validation = self.series.windows("validation")
        return validation if len(validation) else self.series.windows("test")

    @cached_property
    def tables(self) -> tuple[NDArray[np.float64], ...]:
        """The files of the command line."""
        columns = list(self.format.columns)
        return tuple(read_table(str(file), date="", columns=columns).values for file in self.files)

    def example(self, selection: Selection, output: str, edits: Mapping[str, Edit] | None, keep: str = "*") -> Example:
        column, number = self.format.columns.index(selection.target), int(selection.source)
        mean, deviation = self.format.mean[column], self.format.deviation[column]
        one = SeriesFormat(columns=[selection.target], mean=[mean], deviation=[deviation])
        if number < len(self.files):
            values = self.tables[number]
        else:
            values = self._rows(number)[: self.model.config.context]
        return examine_series(self.model, one, values[:, [column]], keep, edits)

    def restore(self, selection: Selection, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Standardized values of the variable in its own units."""
        column = self.format.columns.index(selection.target)
        return values * self.format.deviation[column] + self.format.mean[column]

    def truth(self, selection: Selection) -> NDArray[np.float64] | None:
        """The steps that followed, in their own units; None if they are not known."""
        number, column = int(selection.source), self.format.columns.index(selection.target)
        return None if number < len(self.files) else self._rows(number)[self.model.config.context :, column]

    def _rows(self, number: int) -> NDArray[np.float64]:
        """Context and future of a window in their own units; NaN is a missing future."""
        assert self.series is not None
        batch = self.series.batch(self.windows[[number - len(self.files)]])
        both = np.concatenate((batch.context[0].double().numpy(), batch.future[0].double().numpy()))
        return self.series.format.restore(both)


def _data_of(folder: Path) -> dict[str, Any]:
    """The data of the run's configuration; ``folder`` is the run, or one of its checkpoints."""
    for place in (folder, folder.parent.parent):
        with suppress(OSError, ValueError, KeyError):
            values: dict[str, Any] = tomllib.loads((place / CONFIG_FILE).read_text(encoding="utf-8"))["data"]
            return values
    raise DataError(f"{folder / CONFIG_FILE}: has no data")


def _require_files(files: tuple[Path, ...], what: str, reason: object) -> None:
    """Raise ``DataError`` if there are no files that take the place of validation data."""
    if not files:
        text = str(reason).partition(";")[0]
        raise DataError(f"the validation {what} of this run cannot be read ({text}); name a file with --input FILE")
