"""Going on with a run that was stopped: from its newest whole checkpoint, with the settings it was made with."""

from pathlib import Path
from typing import Any

import torch

from glassformer.errors import CheckpointError, ConfigError
from glassformer.generate import LanguageDecodingConfig, TranslationDecodingConfig
from glassformer.models.device import choose_device
from glassformer.predict.loading import load_checked, open_checked
from glassformer.storage.run_folder import BEST, RunFolder, training_values
from glassformer.train.build import build, with_sizes_of
from glassformer.train.config import OptimizerConfig, RunConfig
from glassformer.train.distributed import World
from glassformer.train.division import divides
from glassformer.train.host_process import available_cores
from glassformer.train.state import Override, TrainState

MAY_CHANGE = {
    "decoding",
    "validation",
    "data.cache",
    "data.max_line_bytes",
    "data.validation",
    "data.test",
    "data.on_corrupt",
    "data.shards",
} | {
    f"train.{name}"
    for name in (
        "max_steps",
        "max_seconds",
        "save_every",
        "keep_checkpoints",
        "log_every",
        "max_bad_steps",
        "device",
        "engine",
        "threads",
        "tensor_parallel",
        "wait_seconds",
        "override_on_resume",
    )
}
"""Settings that a resumed run may change. All others decide the weights.

Device, engine and number of threads decide them too, and are compared with those that trained the run, not as settings.
"""

MISSING = object()
ADDED = {
    "text.byte_fallback": False,
    "data.validation_share": 0.0,
    "data.bucket_window": 16384,
    "train.parallel": "ddp",
}
"""Settings added since earlier versions, with the values at which they have no effect."""
OVERRIDABLE = {f"optimizer.{name}" for name in OptimizerConfig.model_fields} | {
    f"train.{name}" for name in ("precision", "label_smoothing", "dropout_warmup_steps", "accumulate", "ema", "loss")
}
"""Settings that ``train.override_on_resume`` lets a resumed run change: how the weights are updated."""

COMPARED_APART = OVERRIDABLE | {"train.threads", "validation.tokenize"}


def begin(config: RunConfig, run: RunFolder, world: World) -> tuple[TrainState, list[str]]:
    """The state before the first step; no checkpoint was passed over."""
    world.from_leader(run.clear)
    return build(config, world), []


def restore(config: RunConfig, run: RunFolder, world: World) -> tuple[TrainState, list[str]]:
    """Load the state of the newest intact checkpoint; return it with a line for each newer one that is damaged.

    Settings that decide the weights must not have changed, unless ``train.override_on_resume`` allows the change.
    """
    newest = world.from_leader(run.latest)
    if newest is None:
        return begin(config, run, world)
    if divides(config, world):
        own = run.checkpoints_path / newest.path.name
        checkpoint = world.together(lambda: open_checked(own, training=True))
    else:
        checkpoint = world.from_leader(lambda: load_checked(newest.path, training=True))
    assert checkpoint.training is not None
    before = checkpoint.training.values.get("config")
    sections = {"model", "data", "train", "optimizer", "validation"}
    if not isinstance(before, dict) or not all(isinstance(before.get(name), dict) for name in sections):
        raise CheckpointError(f"{newest.path}: training_state has no configuration; start a new run")
    before = config.migrate(before)
    if config.train.start_from:  # this run may have copied settings from there
        config, _ = with_sizes_of(config, before.get("model"), str(newest.path))
    overrides = _overrides(config, before, newest.step)
    device = "cuda" if "random.cuda" in checkpoint.training.tensors else "cpu"
    _check_device(config, newest.path, device)
    n_processes = checkpoint.training.values.get("processes", 1)
    if world.size != n_processes:
        overrides.append(Override(newest.step, "processes", n_processes, world.size))
    elif device == "cpu":
        overrides += _thread_override(config, checkpoint.training.values, newest.step, newest.path)
    state = build(config, world, checkpoint)
    state.restore(checkpoint.weights, checkpoint.training, str(newest.path))
    state.overrides += overrides
    world.from_leader(lambda: run.truncate_metrics(newest.step))
    bleu_tokenize = checkpoint.config.get("bleu_tokenize", before["validation"].get("tokenize"))
    world.from_leader(lambda: _restore_best(state, run, before, bleu_tokenize))
    state.counters = world.from_leader(lambda: state.counters)
    if changes := _changes(config, before):
        state.taken.append(f"settings changed since the last checkpoint: {', '.join(changes)}")
    return state, newest.warnings


def _overrides(config: RunConfig, saved: dict[str, dict[str, object]], step: int) -> list[Override]:
    """List the changes that ``train.override_on_resume`` allows; refuse any other change that decides the weights."""
    now = config.model_dump(mode="json")
    if now.pop("task") != saved.get("task", "translation"):
        task = saved.get("task", "translation")
        raise ConfigError(
            f"task={config.task!r}, but the run began with {task!r}; set task={task!r}, or start a new run"
        )
    overrides = []
    for section, values in now.items():
        if section not in saved and values == type(config).model_fields[section].default.model_dump(mode="json"):
            continue  # a section that was added since changes nothing by its defaults
        for key, value in values.items():
            name = f"{section}.{key}"
            if {section, name} & MAY_CHANGE:
                continue
            if key not in saved.get(section, {}):
                if value in (None, []) or ADDED.get(name, MISSING) == value:
                    continue  # as a key that was added since is when it changes nothing
                raise ConfigError(
                    f"{name}={value!r}, but the run began with a version of glassformer without this setting; "
                    "resume with that version, or start a new run"
                )
            before = saved[section][key]
            if value != before:
                _check_override(config, name, before, value, key in getattr(config, section).model_fields_set)
                overrides.append(Override(step, name, before, value))
    return overrides


def _check_override(config: RunConfig, name: str, before: object, now: object, is_set: bool) -> None:
    message = f"{name}={now!r}, but the run began with {before!r}"
    if not is_set:
        message = f"{name} is not set, and its default {now!r} differs from the {before!r} that the run began with"
    if name not in OVERRIDABLE or (name == "train.ema" and not (before and now)):  # there is no average to continue
        raise ConfigError(f"{message}; resume with {before!r}, or start a new run")
    if not config.train.override_on_resume:
        way_out = "or set train.override_on_resume=true to change it from here on"
        raise ConfigError(f"{message}; resume with {before!r}, start a new run, {way_out}")


def _changes(config: RunConfig, saved: dict[str, dict[str, Any]]) -> list[str]:
    """List the changed settings that may always change, by intent or by a damaged ``config.toml``.

    The tokenizer of BLEU is compared elsewhere, since ``auto`` may choose the tokenizer that was set before.
    """
    return [
        f"{section}.{key} {saved[section][key]!r} → {value!r}"
        for section, values in config.model_dump(mode="json", exclude={"task"}).items()
        for key, value in values.items()
        if key in saved.get(section, {}) and value != saved[section][key] and f"{section}.{key}" not in COMPARED_APART
    ]


def _check_device(config: RunConfig, path: Path, before: str) -> None:
    """A CPU and a GPU draw other random numbers and sum in another order."""
    if choose_device(config.train.device, "train.device").type != before:
        kind = "a GPU" if before == "cuda" else "a CPU"
        raise CheckpointError(
            f"{path}: was trained on {kind}, and a run continues exactly only there; set train.device={before}, or "
            "start a new run"
        )


def threads_to_resume(run: RunFolder, processes: int = 1) -> int:
    """Number of threads of the newest checkpoint of ``run`` that stores it.

    0 if it is unknown, exceeds the cores of this machine, or belongs to another number of ``processes``; ``restore``
    then compares it.
    """
    for checkpoint in reversed(run.checkpoints()):
        training = training_values(checkpoint)
        if number := _trained_threads(training):
            same = training.get("processes", 1) == processes
            return number if same and number <= available_cores() else 0
    return 0


def _trained_threads(training: dict[str, Any]) -> int:
    """Number of threads of the process that saved ``training``; 0 if unknown. Early versions saved only the setting."""
    match training:
        case {"threads": int(number)} | {"config": {"train": {"threads": int(number)}}} if number > 0:
            return number
    return 0


def _thread_override(config: RunConfig, training: dict[str, Any], step: int, path: Path) -> list[Override]:
    """A change of the number of threads: PyTorch divides sums among them, and the last bits depend on it."""
    before, now = _trained_threads(training), torch.get_num_threads()
    if before in (0, now):
        return []
    if not config.train.override_on_resume:
        way_on = f"set train.threads={before} (in Python, call torch.set_num_threads({before}))"
        if before > (cores := available_cores()):
            way_on = f"this machine has {cores} core{'s' if cores > 1 else ''}: resume where there are {before}"
        raise ConfigError(
            f"{path}: trained with {before} thread{'s' if before > 1 else ''}, but this process computes with {now}, "
            f"and a run continues exactly only with the same number; {way_on}, or set train.override_on_resume=true "
            f"to go on with {now}"
        )
    return [Override(step, "train.threads", before, now)]


def _restore_best(state: TrainState, run: RunFolder, before: dict[str, Any], bleu_tokenize: str | None) -> None:
    """The best so far counts only when it was measured as it is now; a kill may have come before it was recorded."""
    counters = state.counters
    now = _measured(state.config.model_dump(mode="json"), state.task.metadata().values.get("bleu_tokenize"))
    if now != _measured(before, bleu_tokenize):
        counters.best, counters.best_step, counters.best_loss, counters.without_improvement = None, 0, None, 0
        (run.path / BEST).unlink(missing_ok=True)
    path = run.checkpoints_path / f"step_{counters.best_step:08d}"
    if counters.best is not None and path.is_dir():
        run.set_best(path, state.config.validation.metric, counters.best)
    run.best()  # one that is damaged is told now, and not when the first checkpoint is saved


def _measured(config: dict[str, Any], bleu_tokenize: str | None) -> list[Any]:
    """Settings that decide the validation scores, with the tokenizer that ``validation.tokenize = "auto"`` chose."""
    how = {key: value for key, value in config["validation"].items() if key not in ("every", "patience", "tokenize")}
    decoding = config.get("decoding")
    if decoding is not None:  # by default, keys of later versions change no score
        added = LanguageDecodingConfig().model_dump(mode="json") | TranslationDecodingConfig().model_dump(mode="json")
        decoding = {key: value for key, value in (added | decoding).items() if key != "engine"}
    return [how, bleu_tokenize, config["data"].get("validation"), decoding]
