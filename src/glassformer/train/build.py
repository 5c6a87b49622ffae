"""Construction of a run from a configuration: data, model, optimizer."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from glassformer.config import Config
from glassformer.errors import ConfigError
from glassformer.models.deferred_init import RecordedInit, recording_init
from glassformer.models.device import choose_device, fast_in_bfloat16
from glassformer.models.registry import weights_of
from glassformer.native import Route, accelerate, describe, route
from glassformer.predict.loading import load_checked, open_checked
from glassformer.storage.checkpoint import Checkpoint, check_finite, verify
from glassformer.storage.run_folder import resolve
from glassformer.storage.tensor_files import StoredTensors
from glassformer.tasks import resolve_name
from glassformer.train.config import RunConfig
from glassformer.train.distributed import ALONE, World, local
from glassformer.train.division import REPLICA, TENSOR, check_divided, divides, guides_head, make_mesh
from glassformer.train.host_process import seed_generators
from glassformer.train.optim import build_optimizer
from glassformer.train.state import TrainState
from glassformer.train.task import Ahead, CheckpointMetadata, SourceCheckpoint, Task
from glassformer.train.tasks import make_task

MEANING = ("d_model", "n_heads", "d_ff", "activation", "gated", "norm", "norm_order", "positions")
"""Settings without which weights mean nothing, though each may have a shape that fits."""
OWN = {
    *("kind", "dropout", "attention_dropout", "head_dropout", "masked_tokens"),
    *("vocab_size", "n_classes", "n_tags", "image_size", "n_channels", "n_variables", "context", "horizon"),
}
"""Model settings that ``train.start_from`` does not copy: the new run chooses them, or its data decide them."""


def build(config: RunConfig, world: World = ALONE, goes_on: Checkpoint | None = None) -> TrainState:
    """Build a run before step 0. With ``goes_on``, the checkpoint of a resumed run, its tokenizer is used."""
    device = _device(config.train.device)
    seed_generators(config.train.seed, device)
    source = config.train.start_from if goes_on is None else None
    divided = divides(config, world)
    begins = _source(source, world, divided) if source else None
    taken: list[str] = []
    if begins is not None:
        config, taken = with_sizes_of(config, begins.config.get("model"), f"train.start_from={begins.path}")
    if divided:
        world.together(lambda: check_divided(config, world))
    task = _same_task(config, world, origin_of(goes_on or begins))
    record: RecordedInit | None = None
    if divided and config.train.parallel == "fsdp":
        with recording_init() as record:
            model = task.new_model()
        record.name_weights(model)
    else:
        model = task.new_model().to(device)
        if begins is not None:
            taken.append(_begin_with(model, begins))
    compute_model, routes = _accelerated(config, model, device, divided)
    ema_model = copy.deepcopy(model).requires_grad_(False) if config.train.ema else None
    batches = Ahead(task.batches)
    state = TrainState(config, task, model, batches, compute_model, routes, world, ema_model=ema_model, taken=taken)
    if divided:
        _divide(state, device, record, begins)
    state.optimizer = build_optimizer(config.optimizer, model)
    world.check_equal(
        {"the training data": state.batches.fingerprint, "the digest of the token ids": state.batches.content_digest},
        "give every process the same files",
    )
    world.check_equal({"the engine": describe(routes)}, "train on processors of one kind, or set train.engine=torch")
    return state


def _accelerated(config: RunConfig, model: Any, device: torch.device, divided: bool) -> tuple[Any, list[Route]]:
    """The model that computes, and what computes each part of it; ``ConfigError`` for an engine that cannot."""
    engine, precision = "torch" if divided else config.train.engine, config.train.precision
    if engine == "compile":
        check_compiler(config, device)
    try:
        compute_model = model if divided else accelerate(model, engine, precision)
        return compute_model, route(model, engine, precision)
    except ConfigError as error:
        raise ConfigError(f"train.{error}") from None


def _divide(state: TrainState, device: torch.device, record: RecordedInit | None, begins: Checkpoint | None) -> None:
    """Divide layers and weights among the processes; with ``record``, the model has no memory and no values yet."""
    train = state.config.train
    mesh = make_mesh(state.world.size, train.tensor_parallel, device)
    state.world = replace(state.world, tensor=train.tensor_parallel, replicas=mesh[REPLICA].get_group())
    if train.tensor_parallel > 1:
        state.divide(mesh[TENSOR])
    if record is None:
        return
    state.shard(mesh[REPLICA], device, train.precision == "bfloat16" and fast_in_bfloat16(device), record)
    if begins is not None:
        state.taken.append(state.world.together(lambda: _begin_with(state.model, begins)))
    state.start_average()


def _source(path: str, world: World, sharded: bool) -> Checkpoint:
    """The checkpoint of ``train.start_from``: verified by the first process, and read by each if it divides them."""
    if not sharded:
        return world.from_leader(lambda: load_checked(resolve(path)))
    folder = world.from_leader(lambda: _verified(resolve(path)))
    return world.together(lambda: open_checked(folder))


def _verified(path: Path) -> Path:
    verify(path)
    return path


def settings_of(config: RunConfig) -> dict[str, Any]:
    """Every setting by its name; they have to be equal in all processes."""
    values = config.model_dump(mode="json", exclude={"task"})
    settings = {f"{section}.{key}": value for section, keys in values.items() for key, value in keys.items()}
    return {"task": config.task, **settings}


def _same_task(config: RunConfig, world: World, origin: SourceCheckpoint | None) -> Task:
    """The task with its data: read and encoded by the first process, and then by the others with its tokenizer."""
    made: list[Task] = []

    def make_first() -> CheckpointMetadata:
        made.append(make_task(config, origin))
        return made[0].metadata()

    metadata = world.from_leader(make_first)
    if world.leads:
        world.together(lambda: None)
        return made[0]
    source = SourceCheckpoint(origin.path if origin else "process 0", metadata)
    return world.together(lambda: make_task(config, source))


def check_compiler(config: RunConfig, device: torch.device) -> None:
    """Raise ``ConfigError`` if ``train.engine=compile`` cannot work here."""
    if config.train.dropout_warmup_steps:
        raise ConfigError(
            "train.engine=compile with train.dropout_warmup_steps would compile the model for every rate anew; "
            "set train.dropout_warmup_steps=0, or choose another engine"
        )
    if guides_head(config):
        raise ConfigError("train.engine=compile cannot train a guided head; choose another engine")
    try:
        torch.compile(torch.sin)(torch.zeros(2, device=device))
    except Exception as error:  # PyTorch has no narrower class for a missing compiler
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"train.engine=compile, but torch.compile does not work here ({reason}); install a C++ compiler, or choose "
            "train.engine=auto"
        ) from None


def with_sizes_of(config: RunConfig, model: Any, origin: str) -> tuple[RunConfig, list[str]]:
    """Fill in settings that ``[model]`` leaves out from ``model``; return the result, and a line that lists them."""
    if not isinstance(model, dict) or model.get("kind") != getattr(config.model, "kind", None):
        return config, []
    filled = config.parse({**config.model_dump(), "model": _filled(config.model, model)}, origin)
    before, after = config.model.model_dump(), filled.model.model_dump()
    taken = [f"{name}={after[name]!r}" for name in after if after[name] != before[name]]
    return (filled, [f"{origin}: [model] takes {', '.join(taken)}"]) if taken else (config, [])


def _filled(config: Config, model: dict[str, Any]) -> dict[str, Any]:
    values = config.model_dump()
    for name in model.keys() & values.keys() - OWN:
        part = getattr(config, name)
        if isinstance(part, Config) and isinstance(model[name], dict):
            values[name] = _filled(part, model[name])
        elif name not in config.model_fields_set:
            values[name] = model[name]
    return values


def _device(name: str) -> torch.device:
    """Device by name, among those that a resumed run supports."""
    device = choose_device(name, "train.device")
    if device.type not in ("cpu", "cuda") or (device.type == "cpu" and device.index):
        raise ConfigError(f"train.device={name!r} is not a device that can be used here; choose auto, cpu or cuda")
    return device


def origin_of(checkpoint: Checkpoint | None) -> SourceCheckpoint | None:
    if checkpoint is None:
        return None
    return SourceCheckpoint(str(checkpoint.path), CheckpointMetadata(checkpoint.config, checkpoint.tokenizer))


@torch.no_grad()
def _begin_with(model: Any, checkpoint: Checkpoint) -> str:
    """Take the weights that both have, and say which are left; none in common is refused.

    A head that the new task adds, and what is of another shape, such as a longer table of positions, keeps its fresh
    values.
    """
    origin, own = f"train.start_from={checkpoint.path}", weights_of(model)
    _check_meaning(model.config.model_dump(), checkpoint.config.get("model", {}), origin)
    stored = checkpoint.weights
    shapes = (
        stored.shapes if isinstance(stored, StoredTensors) else {name: tuple(w.shape) for name, w in stored.items()}
    )
    fits = {name: shapes.get(name) == tuple(w.shape) for name, w in own.items()}
    if not any(fits.values()):
        raise ConfigError(f"{origin}: none of its weights fits the model; make [model] like that run's")
    taken = {name: own[name] for name, fit in fits.items() if fit}
    if isinstance(stored, StoredTensors):
        resolve_name("glassformer.train.sharded:load_shards")(taken, stored)
        check_finite({name: local(w) for name, w in taken.items()}, str(checkpoint.path))
    else:
        for name, w in taken.items():
            w.copy_(stored[name])
    fresh = [name for name, fit in fits.items() if not fit]
    listed = ", ".join(fresh[:5]) + (f" and {len(fresh) - 5} more" if len(fresh) > 5 else "")
    note = f"; {listed} begin{'s' if len(fresh) == 1 else ''} afresh" if fresh else ""
    return f"{origin}: {len(own) - len(fresh)} of {len(own)} weights are taken{note}"


def _check_meaning(now: dict[str, Any], before: dict[str, Any], origin: str) -> None:
    for name in MEANING:
        if name in now and name in before and now[name] != before[name]:
            raise ConfigError(
                f"model.{name}={now[name]!r}, but the weights of {origin} are of a model with {name}={before[name]!r}; "
                "set it to that"
            )
