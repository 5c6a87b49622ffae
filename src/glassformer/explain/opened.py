"""A run of any task, opened and shown one thing: a text, a picture file, a table of numbers over time."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from glassformer.data.images import ImageFormat
from glassformer.data.time_series import SeriesFormat
from glassformer.data.time_series_files import read_table
from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.explain.examined import Examined
from glassformer.explain.example import examine
from glassformer.explain.reading import (
    examine_class,
    examine_continuation,
    examine_image,
    examine_masked,
    examine_series,
    examine_tags,
)
from glassformer.predict.opening import Opened, open_run, task_at
from glassformer.text.tokenizer import Tokenizer
from glassformer.translator import Translator


@dataclass(frozen=True)
class Shown:
    """``given`` is a text, or the path of a picture or a table; ``second`` a translation, or the text of a pair."""

    given: str
    second: str | None = None
    keep: str = "*"


def examine_run(run: str | Path, shown: Shown) -> Examined:
    """What the run at ``run`` makes of it; which kind of example it is, its task says."""
    task = task_at(run)
    if task == "translation":
        return examine(Translator.load(run), shown.given, shown.second, shown.keep)
    if task not in EXAMINERS:
        raise CheckpointError(f"{run}: task={task!r} cannot be followed; known: translation, {', '.join(EXAMINERS)}")
    if shown.second is not None and task != "classification":
        raise ConfigError(f"{run}: this is a run of {task}, which has no second text; leave --target out")
    return EXAMINERS[task](open_run(run, (task,)), shown)


def _words(opened: Opened) -> Tokenizer:
    if opened.tokenizer is None:
        raise CheckpointError(f"{opened.path}: has no tokenizer, which reading text needs; restore the original")
    return opened.tokenizer


def _language(opened: Opened, shown: Shown) -> Examined:
    return examine_continuation(opened.model, _words(opened), shown.given, shown.keep)


def _masked(opened: Opened, shown: Shown) -> Examined:
    return examine_masked(opened.model, _words(opened), shown.given, shown.keep)


def _classification(opened: Opened, shown: Shown) -> Examined:
    texts = [shown.given, *([] if shown.second is None else [shown.second])]
    return examine_class(opened.model, _words(opened), texts, opened.stored("labels"), shown.keep)


def _tagging(opened: Opened, shown: Shown) -> Examined:
    return examine_tags(opened.model, _words(opened), shown.given, opened.stored("tags"), shown.keep)


def _images(opened: Opened, shown: Shown) -> Examined:
    format = ImageFormat.parse(opened.stored("format"), "format")
    if not Path(shown.given).is_file():
        raise DataError(f"{shown.given}: there is no such picture; this run reads PNG and JPEG files")
    return examine_image(opened.model, format, shown.given, shown.keep)


def _forecasting(opened: Opened, shown: Shown) -> Examined:
    format = SeriesFormat.parse(opened.stored("format"), "format")
    table = read_table(shown.given, date="", columns=list(format.columns))
    return examine_series(opened.model, format, table.values, shown.keep)


EXAMINERS: dict[str, Callable[[Opened, Shown], Examined]] = {
    "language": _language,
    "masked": _masked,
    "classification": _classification,
    "tagging": _tagging,
    "images": _images,
    "forecasting": _forecasting,
}
