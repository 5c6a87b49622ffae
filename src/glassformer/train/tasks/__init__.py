"""The one table of tasks: what a run can train for, and which of them each kind of model trains for by itself."""

from pathlib import Path
from typing import Any

from glassformer.config import apply_override, read_toml
from glassformer.errors import ConfigError, nearest
from glassformer.train.config import RunConfig
from glassformer.train.task import SourceCheckpoint, Task
from glassformer.train.tasks.classification import Classification, ClassificationRun
from glassformer.train.tasks.forecasting import Forecasting, ForecastingRun
from glassformer.train.tasks.images import ImageClassification, ImageRun
from glassformer.train.tasks.language import LanguageModeling, LanguageRun
from glassformer.train.tasks.masked import MaskedModeling, MaskedRun
from glassformer.train.tasks.tagging import Tagging, TaggingRun
from glassformer.train.tasks.translation import RecurrentRun, Translation, TranslationRun

TASKS: dict[str, tuple[Any, dict[str, type[RunConfig]]]] = {
    "translation": (Translation, {"encoder_decoder": TranslationRun, "recurrent": RecurrentRun}),
    "language": (LanguageModeling, {"gpt": LanguageRun}),
    "masked": (MaskedModeling, {"bert": MaskedRun}),
    "classification": (Classification, {"bert": ClassificationRun}),
    "tagging": (Tagging, {"bert": TaggingRun}),
    "images": (ImageClassification, {"vit": ImageRun}),
    "forecasting": (Forecasting, {"series": ForecastingRun}),
}
"""The task, and the configuration of its runs for each kind of model that can be trained for it."""

TASK_OF_KIND = {
    "encoder_decoder": "translation",
    "recurrent": "translation",
    "gpt": "language",
    "bert": "masked",
    "vit": "images",
    "series": "forecasting",
}


def parse_config(values: dict[str, Any], origin: str = "configuration") -> RunConfig:
    """The configuration of a run, of the class that its task has."""
    return config_class(values, origin).parse(values, origin)


def read_config(path: str | Path, overrides: list[str] | None = None) -> RunConfig:
    """Default < file < ``overrides`` (``train.max_steps=200``). An error names the one that it comes with."""
    values = read_toml(path)
    for override in overrides or []:
        apply_override(values, override)
    return config_class(values, str(path)).read(path, overrides)


def config_class(values: dict[str, Any], origin: str) -> type[RunConfig]:
    """``task`` where it is given, else what ``model.kind`` is for, else translation."""
    model = values.get("model")
    given = model.get("kind") if isinstance(model, dict) else None
    if given is not None and given not in TASK_OF_KIND:
        raise ConfigError(f"{origin}: model.kind={given!r} is not a model; {nearest(str(given), list(TASK_OF_KIND))}")
    task = values.get("task", TASK_OF_KIND[given or "encoder_decoder"])
    if task not in TASKS:
        raise ConfigError(f"{origin}: task={task!r} is not a task; {nearest(str(task), list(TASKS))}")
    kinds = TASKS[task][1]
    if given is not None and given not in kinds:
        raise ConfigError(
            f"{origin}: task={task!r} trains model.kind={' or '.join(kinds)}, not {given!r}; set one of them"
        )
    return kinds[given or next(iter(kinds))]


def make_task(config: RunConfig, origin: SourceCheckpoint | None = None) -> Task:
    """Data and tokenizer read and checked. ``origin``: of a run that goes on, or starts from another one."""
    made: Task = TASKS[config.task][0](config, origin)
    return made
