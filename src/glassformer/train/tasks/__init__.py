"""Reading the configuration of a training, and making its task."""

from pathlib import Path
from typing import Any

from glassformer.config import apply_override, read_toml
from glassformer.errors import ConfigError, nearest
from glassformer.tasks import DEFAULT_TASKS, TASKS, resolve_name
from glassformer.train.config import RunConfig
from glassformer.train.task import SourceCheckpoint, Task


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
    kind = model.get("kind") if isinstance(model, dict) else None
    if kind is not None and (not isinstance(kind, str) or kind not in DEFAULT_TASKS):
        raise ConfigError(f"{origin}: model.kind={kind!r} is not a model; {nearest(str(kind), list(DEFAULT_TASKS))}")
    task = values.get("task", DEFAULT_TASKS[kind or "encoder_decoder"])
    trained = {name: record.settings for name, record in TASKS.items() if record.training}
    if not isinstance(task, str) or task not in trained:
        raise ConfigError(f"{origin}: task={task!r} is not a task; {nearest(str(task), list(trained))}")
    kinds = trained[task]
    if kind is not None and kind not in kinds:
        raise ConfigError(
            f"{origin}: task={task!r} trains model.kind={' or '.join(kinds)}, not {kind!r}; set one of them"
        )
    settings: type[RunConfig] = resolve_name(kinds[kind or next(iter(kinds))])
    return settings


def make_task(config: RunConfig, origin: SourceCheckpoint | None = None) -> Task:
    """Read and check the data and tokenizer. ``origin`` is the checkpoint that a run resumes or starts from."""
    task: Task = resolve_name(TASKS[config.task].training)(config, origin)
    return task
