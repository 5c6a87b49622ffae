"""Trace a run of any task over one example: a text, an image file, or a table."""

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
from glassformer.predict.loading import load_run, task_at
from glassformer.predict.translator import Translator
from glassformer.tasks import TASKS, resolve_name


@dataclass(frozen=True)
class Shown:
    """``given`` is a text, or the path of a picture or a table; ``second`` a translation, or the text of a pair."""

    given: str
    second: str | None = None
    keep: str = "*"


def examine_run(run: str | Path, shown: Shown) -> Examined:
    """Trace the model of ``run`` over the example, as its task does."""
    task = task_at(run)
    if task not in TASKS or not TASKS[task].example:
        known = ", ".join(name for name, record in TASKS.items() if record.example)
        raise CheckpointError(f"{run}: task={task!r} cannot be followed; known: {known}")
    if shown.second is not None and task not in ("translation", "classification"):
        raise ConfigError(f"{run}: this is a run of {task}, which has no second text; leave --target out")
    examined: Examined = resolve_name(TASKS[task].example)(run, shown)
    return examined


def examine_translation(run: str | Path, shown: Shown) -> Examined:
    return examine(Translator.load(run), shown.given, shown.second, shown.keep)


def examine_language(run: str | Path, shown: Shown) -> Examined:
    loaded = load_run(run)
    return examine_continuation(loaded.model, loaded.tokenizer, shown.given, shown.keep)


def examine_masked_text(run: str | Path, shown: Shown) -> Examined:
    loaded = load_run(run)
    return examine_masked(loaded.model, loaded.tokenizer, shown.given, shown.keep)


def examine_classification(run: str | Path, shown: Shown) -> Examined:
    loaded, texts = load_run(run), [shown.given, *([] if shown.second is None else [shown.second])]
    return examine_class(loaded.model, loaded.tokenizer, texts, loaded.setting("labels"), shown.keep)


def examine_tagging(run: str | Path, shown: Shown) -> Examined:
    loaded = load_run(run)
    return examine_tags(loaded.model, loaded.tokenizer, shown.given, loaded.setting("tags"), shown.keep)


def examine_image_file(run: str | Path, shown: Shown) -> Examined:
    loaded = load_run(run)
    format = ImageFormat.parse(loaded.setting("format"), "format")
    if not Path(shown.given).is_file():
        raise DataError(f"{shown.given}: there is no such picture; this run reads PNG and JPEG files")
    return examine_image(loaded.model, format, shown.given, shown.keep)


def examine_table(run: str | Path, shown: Shown) -> Examined:
    loaded = load_run(run)
    format = SeriesFormat.parse(loaded.setting("format"), "format")
    table = read_table(shown.given, date="", columns=list(format.columns))
    return examine_series(loaded.model, format, table.values, shown.keep)
