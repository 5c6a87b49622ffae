"""The model of a checkpoint with its vocabularies, checked to be of one training."""

from typing import Any

from glassformer.allocator import release_libraries
from glassformer.checkpoint import Checkpoint
from glassformer.config import CheckpointError
from glassformer.models.registry import build_undrawn, load_weights
from glassformer.text import TokenizerPair


def trained(checkpoint: Checkpoint) -> tuple[Any, TokenizerPair | None]:
    """In training mode; None where the model reads no text. A ``CheckpointError`` says what does not fit what."""
    release_libraries("importing")  # before memory is taken
    model = build_undrawn(checkpoint.config.get("model", {}), f"{checkpoint.path}/config.json")
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
