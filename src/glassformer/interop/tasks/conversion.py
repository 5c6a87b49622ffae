"""Protocol of the task-specific parts of an import or export."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from glassformer.errors import CheckpointError
from glassformer.interop.parity import Logits, ParityInputs, Sample
from glassformer.predict.loading import LoadedRun
from glassformer.tasks import TASKS, resolve_name
from glassformer.text import TokenizerPair


class TaskConversion(Protocol):
    """Conversion of one task: the files beside the weights, and the comparison of both models."""

    @property
    def loader(self) -> str:
        """Auto class of transformers that loads the model."""
        ...

    @property
    def generation(self) -> dict[str, Any]:
        """Settings of transformers that change the generated text, each with its neutral value."""
        ...

    def read(
        self, folder: Path, their_config: dict[str, Any], config: Any
    ) -> tuple[dict[str, Any], TokenizerPair | None]:
        """Read settings and tokenizers of ``folder``, whose ``config.json`` is ``their_config``."""
        ...

    def settings(self, run: LoadedRun) -> dict[str, Any]:
        """Values of their ``config.json`` beside the model: special tokens, class names."""
        ...

    def write(self, folder: Path, run: LoadedRun) -> list[str]:
        """Write their other files, and return a note on each setting without a counterpart."""
        ...

    def inputs(self, run: LoadedRun) -> ParityInputs:
        """Random inputs in the dtype of the model."""
        ...

    def logits(self, model: Any) -> Logits:
        """Function from ``inputs`` to the logits of our model."""
        ...

    def their_logits(self, their_model: Any) -> Logits:
        """Function from ``inputs`` to the logits of their model."""
        ...

    def samples(self, run: LoadedRun, their_model: Any, folder: Path, texts: Sequence[str] | None) -> list[Sample]:
        """Outputs of both tokenizers and models for ``texts``, or for random ones."""
        ...


def conversion_of(task: str) -> TaskConversion:
    """The conversion of ``task``, from the table of tasks."""
    conversion: TaskConversion = resolve_name(TASKS[task].conversion)
    return conversion


def import_labels(their_config: dict[str, Any]) -> list[str]:
    """Class names in the order of their indices."""
    table = {int(number): str(name) for number, name in (their_config.get("id2label") or {}).items()}
    if sorted(table) != list(range(len(table))) or not table:
        raise CheckpointError(f"config.json: id2label={table} does not number its names from 0; correct it")
    return [table[number] for number in range(len(table))]


def export_labels(names: list[str]) -> dict[str, Any]:
    """Values of their ``config.json`` for class names."""
    return {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}
