"""A checkpoint with the model in it, for the task that it was trained for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.storage.checkpoint import CONFIG, CONTAINERS, LARGEST, verify
from glassformer.errors import CheckpointError
from glassformer.storage.manifest import parse_object, refusing
from glassformer.model_loading import load_checked, load_model
from glassformer.models.device import choose_device
from glassformer.storage.regular_files import read_regular
from glassformer.storage.run_folder import resolve
from glassformer.text import Tokenizer, TokenizerPair

TASK_OF_KIND = {"gpt": "language", "bert": "masked", "vit": "images", "series": "forecasting"}
"""Of checkpoints that say nothing of a task."""

VERBS = {
    "translation": "translate",
    "language": "generate",
    "masked": "fill",
    "embedding": "embed",
    "classification": "classify",
    "tagging": "tag",
    "images": "classify",
    "forecasting": "forecast",
}
"""What a run of each task is used with on the command line."""


@dataclass(frozen=True)
class Opened:
    """``model`` is in evaluation mode; ``config`` is what stands beside its weights."""

    path: Path
    config: dict[str, Any]
    model: Any
    tokenizer: Tokenizer | None

    def stored(self, key: str) -> Any:
        """What the task has written for using the model."""
        if key not in self.config:
            raise CheckpointError(f"{self.path}: config.json has no {key!r}, which prediction needs; train it again")
        return self.config[key]


def task_of(config: dict[str, Any]) -> str:
    """What a checkpoint with this ``config.json`` is for."""
    model = config.get("model")
    kind = model.get("kind", "") if isinstance(model, dict) else ""
    default = TASK_OF_KIND.get(kind, "translation") if isinstance(kind, str) else "translation"
    return str(config.get("task") or default)


def task_at(path: str | Path) -> str:
    """The task of a run or checkpoint folder, without reading its weights."""
    folder = resolve(path)
    if not (folder / CONFIG).is_file():
        verify(folder)  # says what is missing
    return task_of(_config_at(folder))


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


def check_task(path: str | Path, tasks: tuple[str, ...]) -> None:
    """A ``CheckpointError`` names the verb that fits a run that is not for one of ``tasks``."""
    found = task_at(path)
    if found not in tasks:
        way = f"use glassformer {VERBS[found]}" if found in VERBS else "this version knows no use for it"
        if found == "embedding":
            way = f"it has no head, only vectors; {way}, or train a head on it (train.start_from)"
        raise CheckpointError(f"{path}: is a run of task={found}, but this is for {' or '.join(tasks)}; {way}")


def open_run(path: str | Path, tasks: tuple[str, ...], device: str = "cpu") -> Opened:
    """The checkpoint that ``path`` means, whole, consistent and for one of ``tasks``, or a ``CheckpointError``."""
    check_task(path, tasks)
    checkpoint = load_checked(resolve(path))
    model, pair = load_model(checkpoint)
    return Opened(
        checkpoint.path,
        checkpoint.config,
        model.to(choose_device(device)).eval(),
        None if pair is None else pair.source,
    )


def open_any(path: str | Path) -> tuple[str, Any, TokenizerPair | None]:
    """The task, the model and the vocabularies of any checkpoint, checked likewise."""
    checkpoint = load_checked(resolve(path))
    return task_of(checkpoint.config), *load_model(checkpoint)
