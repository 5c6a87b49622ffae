"""What differs between tasks when a checkpoint is imported or exported."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from glassformer.errors import CheckpointError
from glassformer.interop.parity import Logits, ParityInputs, Sample
from glassformer.predict.loading import LoadedRun
from glassformer.tasks import TASKS, resolve_name
from glassformer.text import TokenizerPair


class TaskConversion(Protocol):
    """One task: what is beside the weights on both sides, and how they are compared."""

    @property
    def loader(self) -> str:
        """Their class that finds the model's."""
        ...

    @property
    def generation(self) -> dict[str, Any]:
        """Their settings that change the generated text, each with the value that does not."""
        ...

    def read(self, folder: Path, theirs: dict[str, Any], config: Any) -> tuple[dict[str, Any], TokenizerPair | None]:
        """``settings`` and tokenizers of a ``LoadedRun``, from their folder, of which ``theirs`` is ``config.json``."""
        ...

    def settings(self, held: LoadedRun) -> dict[str, Any]:
        """What their ``config.json`` says beside the model: symbols, names of classes."""
        ...

    def write(self, folder: Path, held: LoadedRun) -> list[str]:
        """Their other files; a sentence for each thing that they cannot say."""
        ...

    def inputs(self, held: LoadedRun) -> ParityInputs:
        """In the type of the model."""
        ...

    def logits(self, model: Any) -> Logits: ...

    def their_logits(self, theirs: Any) -> Logits: ...

    def samples(self, held: LoadedRun, theirs: Any, folder: Path, texts: Sequence[str] | None) -> list[Sample]:
        """``texts``, or random ones, by their tokenizer and model and by ours."""
        ...


def conversion_of(task: str) -> TaskConversion:
    conversion: TaskConversion = resolve_name(TASKS[task].conversion)
    return conversion


def names_of(theirs: dict[str, Any]) -> list[str]:
    """In the order of their numbers."""
    table = {int(number): str(name) for number, name in (theirs.get("id2label") or {}).items()}
    if sorted(table) != list(range(len(table))) or not table:
        raise CheckpointError(f"config.json: id2label={table} does not number its names from 0; correct it")
    return [table[number] for number in range(len(table))]


def with_names(names: list[str]) -> dict[str, Any]:
    return {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}
