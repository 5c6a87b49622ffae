"""What differs between tasks when a checkpoint comes or goes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from glassformer.interop.parity import Inputs, Logits, Sample
from glassformer.interop.runs import Held
from glassformer.text import TokenizerPair


class TaskConversion(Protocol):
    """One task: what is beside the weights on both sides, and how they are compared."""

    @property
    def loader(self) -> str:
        """Their class that finds the model's."""
        ...

    def read(self, folder: Path, theirs: dict[str, Any], config: Any) -> tuple[dict[str, Any], TokenizerPair | None]:
        """``values`` and tokenizers of a ``Held``, from their folder, of which ``theirs`` is ``config.json``."""
        ...

    def settings(self, held: Held) -> dict[str, Any]:
        """What their ``config.json`` says beside the model: symbols, names of classes."""
        ...

    def write(self, folder: Path, held: Held) -> list[str]:
        """Their other files; a sentence for each thing that they cannot say."""
        ...

    def inputs(self, held: Held) -> Inputs:
        """In the type of the model."""
        ...

    def logits(self, model: Any) -> Logits: ...

    def their_logits(self, theirs: Any) -> Logits: ...

    def samples(self, held: Held, theirs: Any, folder: Path, texts: Sequence[str] | None) -> list[Sample]:
        """``texts``, or random ones, by their tokenizer and model and by ours."""
        ...
