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
class ExampleInput:
    """An example to trace: ``text`` is a text, or the path of an image or a table; ``second`` is a translation, or the
    second text of a pair. ``keep`` is a glob of the tensors to record, ``device`` where the model computes."""

    text: str
    second: str | None = None
    keep: str = "*"
    device: str = "cpu"


def examine_run(run: str | Path, example: ExampleInput) -> Examined:
    """Trace the model of ``run`` over the example, as its task does."""
    task = task_at(run)
    if task not in TASKS or not TASKS[task].example:
        known = ", ".join(name for name, record in TASKS.items() if record.example)
        raise CheckpointError(f"{run}: task={task!r} cannot be followed; known: {known}")
    if example.second is not None and not TASKS[task].pairs:
        raise ConfigError(f"{run}: this is a run of {task}, which has no second text; leave --target out")
    examined: Examined = resolve_name(TASKS[task].example)(run, example)
    return examined


def examine_translation(run: str | Path, example: ExampleInput) -> Examined:
    return examine(Translator.load(run, device=example.device), example.text, example.second, example.keep)


def examine_language(run: str | Path, example: ExampleInput) -> Examined:
    loaded = load_run(run, device=example.device)
    return examine_continuation(loaded.model, loaded.tokenizer, example.text, example.keep)


def examine_masked_text(run: str | Path, example: ExampleInput) -> Examined:
    loaded = load_run(run, device=example.device)
    return examine_masked(loaded.model, loaded.tokenizer, example.text, example.keep)


def examine_classification(run: str | Path, example: ExampleInput) -> Examined:
    loaded, texts = (
        load_run(run, device=example.device),
        [example.text, *([] if example.second is None else [example.second])],
    )
    return examine_class(loaded.model, loaded.tokenizer, texts, loaded.setting("labels"), example.keep)


def examine_tagging(run: str | Path, example: ExampleInput) -> Examined:
    loaded = load_run(run, device=example.device)
    return examine_tags(loaded.model, loaded.tokenizer, example.text, loaded.setting("tags"), example.keep)


def examine_image_file(run: str | Path, example: ExampleInput) -> Examined:
    loaded = load_run(run, device=example.device)
    format = ImageFormat.parse(loaded.setting("format"), "format")
    if not Path(example.text).is_file():
        raise DataError(f"{example.text}: there is no such picture; this run reads PNG and JPEG files")
    return examine_image(loaded.model, format, example.text, example.keep)


def examine_table(run: str | Path, example: ExampleInput) -> Examined:
    loaded = load_run(run, device=example.device)
    format = SeriesFormat.parse(loaded.setting("format"), "format")
    table = read_table(example.text, date="", columns=list(format.columns))
    return examine_series(loaded.model, format, table.values, example.keep)
