"""The one table of tasks: what a run can train for, and which of them each kind of model trains for by itself."""

from pathlib import Path
from typing import Any

from glassformer.config import ConfigError, apply_override, nearest, read_toml
from glassformer.train.config import RunConfig
from glassformer.train.task import Origin, Task
from glassformer.train.tasks.translation import Translation, TranslationRun

TASKS: dict[str, tuple[type[RunConfig], Any]] = {
    "translation": (TranslationRun, Translation),
}

TASK_OF_KIND = {
    "encoder_decoder": "translation",
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
    kind = model.get("kind", "encoder_decoder") if isinstance(model, dict) else "encoder_decoder"
    if kind not in TASK_OF_KIND:
        raise ConfigError(f"{origin}: model.kind={kind!r} is not a model; {nearest(str(kind), list(TASK_OF_KIND))}")
    task = values.get("task", TASK_OF_KIND[kind])
    if task not in TASKS:
        raise ConfigError(f"{origin}: task={task!r} is not a task; {nearest(str(task), list(TASKS))}")
    return TASKS[task][0]


def make_task(config: RunConfig, origin: Origin | None = None) -> Task:
    """Data and tokenizer read and checked. ``origin``: of a run that goes on, or starts from another one."""
    made: Task = TASKS[config.task][1](config, origin)
    return made
