"""Runs of base size with random weights, for measurements that need a size and no quality."""

from itertools import islice, product
from pathlib import Path
from typing import Any

import torch

from glassformer.models.registry import build_model, weights_of
from glassformer.storage.checkpoint import save_checkpoint
from glassformer.text import TextConfig, train_tokenizers

SYLLABLES = [first + vowel for first in "bdfgklmnprstvz" for vowel in "aeiou"]
WORDS = 16_000
SIZES = {"d_model": 512, "n_heads": 8, "d_ff": 2048}
MODELS: dict[str, dict[str, Any]] = {
    "translator": {"kind": "encoder_decoder", **SIZES, "n_encoder_layers": 6, "n_decoder_layers": 6},
    "gpt": {"kind": "gpt", **SIZES, "n_layers": 6},
}
"""The paper's base model, and a language model of the same width."""


def words(count: int, first: int = 0) -> str:
    """A sentence of ``count`` different words of the vocabulary."""
    return " ".join("".join(parts) for parts in islice(product(SYLLABLES, repeat=3), first, first + count))


def save_run(kind: str, folder: Path) -> Path:
    """A run of ``kind``, a key of ``MODELS``: a word is one token, weights are random."""
    text = TextConfig.parse({"kind": "word", "vocab_size": WORDS, "min_frequency": 1, "pre_tokenizer": "whitespace"})
    pair = train_tokenizers(text, lambda: iter([words(WORDS - 4)]), lambda: iter(()))
    config = {**MODELS[kind], "vocab_size": pair.source.vocab_size}
    torch.manual_seed(1)
    model = build_model(config, kind)
    settings = {"model": model.config.model_dump(mode="json"), "step": 1}
    settings |= {"decoding": {"beam_size": 1, "max_extra": 8}} if kind == "translator" else {}
    save_checkpoint(folder / kind, config=settings, tokenizer=pair.to_json(), weights=weights_of(model))
    return folder / kind
