"""The model of a checkpoint with its vocabularies, checked to be of one training."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from glassformer.storage.checkpoint import CONFIG, Checkpoint, load_checkpoint
from glassformer.errors import CheckpointError
from glassformer.models.registry import build_undrawn, check_stored, load_weights, shortened
from glassformer.storage.tensor_header import TensorInfo
from glassformer.text import TokenizerPair

LARGEST_DECODING = {"beam_size": 1_000, "n_best": 1_000}
"""Upper limits for stored defaults; options on the command line may exceed them."""


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
    """Load a checkpoint; a ``config.json`` that does not match the weights is refused before they are read."""
    return load_checkpoint(path, training=training, check=partial(check_settings, origin=f"{path}/{CONFIG}"))


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


def load_model(checkpoint: Checkpoint) -> tuple[Any, TokenizerPair | None]:
    """In training mode; None where the model reads no text. A ``CheckpointError`` says what does not fit what."""
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
