"""A small checkpoint with every kind of tensor in it, for the tests of the folder on disk."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.errors import CheckpointError
from glassformer.storage.checkpoint import TrainingState, load_checkpoint, save_checkpoint
from glassformer.storage.run_folder import RunFolder

CONFIG = {"model": {"kind": "encoder_decoder", "d_model": 8, "dropout": 0.1}, "note": "Größe"}
TOKENIZER = {"joint": True, "vocabulary": ["<pad>", "<s>", "</s>", "<unk>", "ä", "日本"]}
FILES = [
    "config.json",
    "manifest.json",
    "model.safetensors",
    "tokenizer.json",
    "training_state/state.json",
    "training_state/tensors.safetensors",
]


def weights(seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "encoder.q.weight": torch.randn(8, 8, generator=generator),
        "norm.scale": torch.randn(8, generator=generator).bfloat16(),
        "temperature": torch.tensor(0.7, dtype=torch.float64),
        "positions": torch.arange(5),
        "visible": torch.tensor([True, False]),
        "nothing": torch.empty(0, 8),
    }


def training(step: int = 500) -> TrainingState:
    values = {"step": step, "epoch": 0.25, "best": float("inf"), "generator": 2**127 + 1, "betas": [0.9, 0.98]}
    random = torch.Generator().manual_seed(0).get_state()
    return TrainingState(values, {"m.encoder": torch.full((8, 8), 1e-30), "random": random})


def save(path: Path, seed: int = 0, **changes: Any) -> Path:
    save_checkpoint(
        path, **{"config": CONFIG, "tokenizer": TOKENIZER, "weights": weights(seed), "training": training(), **changes}
    )
    return path


def save_step(run: RunFolder, step: int) -> Path:
    return run.save(step, config=CONFIG, tokenizer=TOKENIZER, weights=weights(step), training=training(step))


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    return message.removeprefix(str(path))


@contextmanager
def without_root() -> Iterator[None]:
    """Run as a user whom permissions bind, for they do not bind root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
