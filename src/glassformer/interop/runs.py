"""The run that is exported, and what is imported: a checkpoint in memory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.storage.checkpoint import save_checkpoint
from glassformer.errors import CheckpointError, ConfigError
from glassformer.interop.families import KINDS
from glassformer.model_loading import load_checked, load_model
from glassformer.models.registry import weights_of
from glassformer.storage.run_folder import resolve
from glassformer.text import Tokenizer, TokenizerPair
from glassformer.translator import Translator

EXPORTED = "encoder_decoder"
TASK_OF_KIND = {"encoder_decoder": "translation", "gpt": "language", "bert": "masked", "vit": "images"}
"""Of checkpoints that say nothing of a task."""


@dataclass(frozen=True)
class Held:
    """What a checkpoint holds; ``values`` is its ``config.json`` but for the model."""

    model: Any
    values: dict[str, Any]
    tokenizers: TokenizerPair | None = None

    @property
    def task(self) -> str:
        return str(self.values.get("task") or TASK_OF_KIND.get(self.model.config.kind, ""))

    @property
    def pair(self) -> TokenizerPair:
        assert self.tokenizers is not None
        return self.tokenizers

    @property
    def tokenizer(self) -> Tokenizer:
        return self.pair.source

    def stored(self, key: str) -> Any:
        """What the task has written for using the model."""
        if key not in self.values:
            raise CheckpointError(f"config.json has no {key!r}, which using the model needs; train it again")
        return self.values[key]

    def save(self, path: Path) -> None:
        config = {"model": self.model.config.model_dump(mode="json"), **self.values}
        tokenizer = {} if self.tokenizers is None else self.tokenizers.to_json()
        save_checkpoint(path, config=config, tokenizer=tokenizer, weights=weights_of(self.model))


def held_at(run: str | Path) -> tuple[Path, Held]:
    """The checkpoint that ``run`` means, and what it holds."""
    checkpoint = load_checked(resolve(run))
    model, pair = load_model(checkpoint)
    values = {key: value for key, value in checkpoint.config.items() if key != "model"}
    return checkpoint.path, Held(model.eval(), values, pair)


def translator_of(run: str | Path) -> tuple[Path, Translator]:
    """The checkpoint that ``run`` means, and what it holds; ``ConfigError`` for a model that does not translate."""
    path = resolve(run)
    kind = load_checked(path).config.get("model", {}).get("kind")
    if kind != EXPORTED:
        way = (
            "use --to huggingface"
            if kind in KINDS
            else f"--to huggingface takes {', '.join(KINDS)} alone; use the run itself"
        )
        raise ConfigError(f"{path}: model.kind={kind!r} is not exported there; {EXPORTED} is; {way}")
    return path, Translator.load(path)
