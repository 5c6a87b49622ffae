"""Small checkpoints with random weights, for what is converted."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from glassformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from glassformer.models.registry import weights_of
from glassformer.storage.checkpoint import save_checkpoint
from glassformer.text import TextConfig, train_tokenizers

LINES = (
    "A dog runs through the snow, and nobody sees it.",
    "Ein Mann steht – „am Fluß“ – und ruft: (Hallo)!",
    "日本語のテキスト、 ok? x86-64 3.14 e-mail@example.org",
    "T-Shirts aren't 50% off… or are they? 😀 👩‍👩‍👧 ❤️",
    "<s> is text, and so is </s>; [PAD] too.",
)


def checkpoint(path: Path, kind: str = "bpe", joint: bool = True, decoding: dict[str, Any] | None = None, **model: Any):
    """Every bias and norm is random too, so that none can be forgotten."""
    text = TextConfig.parse({"kind": kind, "joint": joint, "vocab_size": 220, "min_frequency": 1})
    tokenizers = train_tokenizers(text, lambda: iter(LINES), lambda: iter(LINES[:3]))
    sizes = [tokenizers.source.vocab_size, tokenizers.target.vocab_size]
    values = {
        "vocab_size": sizes[0] if joint else sizes,
        "d_model": 18,
        "n_heads": 3,
        "d_ff": 20,
        "n_encoder_layers": 2,
        "n_decoder_layers": 1,
        "max_length": 90,
        "tie_embeddings": joint,
        **model,
    }
    torch.manual_seed(3)
    built = EncoderDecoder(EncoderDecoderConfig.parse(values)).eval()
    fill(built)
    stored = {
        "model": built.config.model_dump(mode="json"),
        "decoding": decoding or {},
        "tokenizer": tokenizers.fingerprint,
    }
    save_checkpoint(path, config=stored, tokenizer=tokenizers.to_json(), weights=weights_of(built))
    return path


@torch.no_grad()
def fill(model: torch.nn.Module, without: Sequence[str] = ()) -> None:
    for name, parameter in model.named_parameters():
        if ("bias" in name or "norm" in name) and not any(part in name for part in without):
            torch.nn.init.normal_(parameter, mean=parameter.mean().item(), std=0.2)
