"""Loading a trained run: its checkpoint is verified and compared with its settings before weights are read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from glassformer.errors import CheckpointError, nearest
from glassformer.models.device import choose_device
from glassformer.models.registry import (
    build_uninitialized,
    check_stored,
    load_weights,
    migrate_model,
    shortened,
    weights_of,
)
from glassformer.storage.checkpoint import (
    CONFIG,
    CONTAINERS,
    LARGEST,
    Checkpoint,
    load_checkpoint,
    open_checkpoint,
    save_checkpoint,
    verify,
)
from glassformer.storage.manifest import parse_object, refusing
from glassformer.storage.regular_files import read_regular
from glassformer.storage.run_folder import resolve
from glassformer.storage.tensor_header import TensorInfo
from glassformer.tasks import DEFAULT_TASKS, TASKS, resolve_name
from glassformer.text import Tokenizer, TokenizerPair

LARGEST_DECODING = {"beam_size": 1_000, "n_best": 1_000}
"""Upper limits for stored defaults; options on the command line may exceed them."""


@dataclass(frozen=True)
class LoadedRun:
    """A trained model with its tokenizers.

    ``settings`` is its ``config.json`` without the model; ``path`` is the folder that it was loaded from.
    """

    model: Any
    settings: dict[str, Any]
    tokenizers: TokenizerPair | None
    path: Path

    @property
    def task(self) -> str:
        return task_of({"model": {"kind": self.model.config.kind}, **self.settings})

    @property
    def pair(self) -> TokenizerPair:
        """Both tokenizers; ``CheckpointError`` if the checkpoint has none."""
        if self.tokenizers is None:
            raise CheckpointError(f"{self.path}: has no tokenizer, which reading text needs; restore the original")
        return self.tokenizers

    @property
    def tokenizer(self) -> Tokenizer:
        """The source tokenizer, the only one of a model that does not translate."""
        return self.pair.source

    def setting(self, key: str) -> Any:
        """A setting that prediction needs; ``CheckpointError`` if ``config.json`` has none."""
        if key not in self.settings:
            raise CheckpointError(f"{self.path}: config.json has no {key!r}, which prediction needs; train it again")
        return self.settings[key]

    def save(self, path: Path) -> None:
        """Write a checkpoint."""
        config = {"model": self.model.config.model_dump(mode="json"), **self.settings}
        tokenizer = {} if self.tokenizers is None else self.tokenizers.to_json()
        save_checkpoint(path, config=config, tokenizer=tokenizer, weights=weights_of(self.model))


def load(*paths: str | Path, device: str = "cpu") -> Any:
    """Load a run: ``glassformer.load("runs/x").translate(["A dog runs."])``.

    The task of the run decides the class, and so the method: ``translate``, ``generate``, ``fill``, ``embed``,
    ``classify``, ``tag`` or ``forecast``. Several runs of translators make an ensemble. ``device``: cpu, cuda, or auto,
    a GPU if there is one.
    """
    if not paths:
        raise CheckpointError("no checkpoint is named; name at least one")
    predictor, task = predictor_class(paths[0]), task_at(paths[0])
    if len(paths) > 1 and task != "translation":
        raise CheckpointError(
            f"{paths[0]}: is a run of task={task}, but only translators form an ensemble; name one checkpoint"
        )
    return predictor.load(*paths, device=device)


def predictor_class(path: str | Path) -> Any:
    """The class that uses a run, by its task. ``CheckpointError`` for an unknown task."""
    task = task_at(path)
    if task not in TASKS:
        raise CheckpointError(f"{path}: task={task!r} is not a task; {nearest(task, list(TASKS))}")
    return resolve_name(TASKS[task].predictor)


def load_run(path: str | Path, tasks: tuple[str, ...] = (), device: str = "cpu") -> LoadedRun:
    """Load a run or checkpoint folder, its model in evaluation mode.

    Raises:
        CheckpointError: The checkpoint is damaged or inconsistent, or is a run of none of ``tasks``, if any are given.
    """
    if tasks:
        check_task(path, tasks)
    checkpoint = load_checked(resolve(path))
    model, pair = load_model(checkpoint)
    settings = {key: value for key, value in checkpoint.config.items() if key != "model"}
    return LoadedRun(model.to(choose_device(device)).eval(), settings, pair, checkpoint.path)


def load_model(checkpoint: Checkpoint) -> tuple[Any, TokenizerPair | None]:
    """The model, in training mode, and its tokenizers, None if it reads no text; checked to be of one training."""
    model = build_uninitialized(checkpoint.config.get("model", {}), f"{checkpoint.path}/config.json")
    pair = TokenizerPair.from_json(checkpoint.tokenizer, str(checkpoint.path)) if checkpoint.tokenizer else None
    if pair is not None:
        sizes = pair.source.vocab_size, pair.target.vocab_size
        known = getattr(model.config, "vocab_sizes", None) or (model.config.vocab_size, model.config.vocab_size)
        if known != sizes:
            raise CheckpointError(
                f"{checkpoint.path}: the tokenizer has {sizes} entries and the model {known}; "
                "they are not from one training; restore the original"
            )
        if checkpoint.config.get("tokenizer", pair.fingerprint) != pair.fingerprint:
            raise CheckpointError(
                f"{checkpoint.path}: the tokenizer is not the one the model was trained with; restore the original"
            )
    load_weights(model, checkpoint.weights, str(checkpoint.path))
    return model, pair


def task_of(config: dict[str, Any]) -> str:
    """The task of a checkpoint with this ``config.json``; that of its kind of model if it names none."""
    model = config.get("model")
    kind = model.get("kind", "") if isinstance(model, dict) else ""
    default = DEFAULT_TASKS.get(kind, "translation") if isinstance(kind, str) else "translation"
    return str(config.get("task") or default)


def task_at(path: str | Path) -> str:
    """The task of a run or checkpoint folder, without reading its weights."""
    folder = resolve(path)
    if not (folder / CONFIG).is_file():
        verify(folder)  # says what is missing
    return task_of(_config_at(folder))


def check_task(path: str | Path, tasks: tuple[str, ...]) -> None:
    """Raise ``CheckpointError`` for a run of another task; it names the command that fits."""
    found = task_at(path)
    if found not in tasks:
        way = f"use glassformer {TASKS[found].commands[0]}" if found in TASKS else "this version knows no use for it"
        if found == "embedding":
            way = f"it has no head, only vectors; {way}, or train a head on it (train.start_from)"
        raise CheckpointError(f"{path}: is a run of task={found}, but this is for {' or '.join(tasks)}; {way}")


def stored_languages(path: str | Path) -> tuple[str, str] | None:
    """Language codes of source and target in a translator's run or checkpoint folder; None if it stores none."""
    found = _config_at(resolve(path)).get("languages")
    if not (isinstance(found, list) and len(found) == 2 and all(isinstance(code, str) and code for code in found)):
        return None
    return found[0], found[1]


def stored_decoding(path: str | Path) -> dict[str, Any]:
    """Decoding settings in a run or checkpoint folder; empty if it stores none."""
    found = _config_at(resolve(path)).get("decoding", {})
    return found if isinstance(found, dict) else {}


def _config_at(folder: Path) -> dict[str, Any]:
    """The unverified ``config.json`` of a checkpoint folder; empty if it is not a JSON object."""
    with refusing(f"{folder / CONFIG}: cannot be read"):
        return parse_object(read_regular(folder / CONFIG, LARGEST[CONFIG], folder), CONTAINERS[CONFIG]) or {}


class _Reading(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    layer: int = -1
    head: int | None = Field(None, ge=0)
    shifted: bool = False


class _Stored(BaseModel):
    """Settings of ``config.json`` that are read here; later versions may write more."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)
    model: dict[str, Any] = {}
    task: str = "translation"
    step: int | None = Field(None, ge=0)
    tokenizer: str | None = None
    decoding: dict[str, Any] = {}
    format: dict[str, Any] = {}
    labels: list[str] = []
    tags: list[str] = []
    context: int = Field(1, gt=0)
    max_length: int = Field(3, ge=3)
    documents: str = "file"
    within_documents: bool = False
    bleu_tokenize: str = "13a"
    guided_alignment: _Reading = _Reading()


def load_checked(path: str | Path, *, training: bool = False) -> Checkpoint:
    """Load a checkpoint; a ``config.json`` that does not match the weights is refused before they are read.

    Former keys of the model are returned under their present names.
    """
    check = partial(check_settings, origin=f"{path}/{CONFIG}")
    return _with_present_keys(load_checkpoint(path, training=training, check=check))


def open_checked(path: str | Path, *, training: bool = False) -> Checkpoint:
    """``load_checked`` without reading tensors, and of files that the caller has verified."""
    check = partial(check_settings, origin=f"{path}/{CONFIG}")
    return _with_present_keys(open_checkpoint(path, training=training, check=check))


def _with_present_keys(checkpoint: Checkpoint) -> Checkpoint:
    model = migrate_model(checkpoint.config.get("model", {}))
    return replace(checkpoint, config={**checkpoint.config, "model": model})


def check_settings(config: dict[str, Any], stored: Mapping[str, TensorInfo], origin: str) -> None:
    """Raise ``CheckpointError`` for a value of the wrong type, or for a size that does not match the weights."""
    try:
        values = _Stored.model_validate(config)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        fault = f"{where}={shortened(first['input'])}: {first['msg'][:1].lower()}{first['msg'][1:]}"
        raise CheckpointError(f"{origin}: {fault}; restore the original") from None
    for key, value in values.decoding.items():
        limit = LARGEST_DECODING.get(key, 10**6)
        if isinstance(value, int) and value > limit and key != "seed":
            raise CheckpointError(
                f"{origin}: decoding.{key}={value:.0e} is above the limit of {limit:,}; restore the original"
            )
    model = check_stored(values.model, stored, origin)
    for key, size in (("labels", "n_classes"), ("tags", "n_tags")):
        names, count = getattr(values, key), getattr(model, size, 0)
        if key in values.model_fields_set and len(names) != count:
            raise CheckpointError(
                f"{origin}: {key} has {len(names)} names, but model.{size} is {count}; restore the original"
            )
