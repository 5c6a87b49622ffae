"""Checkpoints of every task but translation, with random weights, as a run leaves them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from explain.small_examples import CLASSES, FORMAT, SERIES, TAGS, vocabulary
from explain.small_models import small_model
from glassformer.models.registry import weights_of
from glassformer.storage.checkpoint import save_checkpoint

WORDS = vocabulary()
SIZE = {"vocab_size": WORDS.source.vocab_size}
TASKS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "language": ("gpt", SIZE, {"context": 8, "documents": "joined", "decoding": {}}),
    "masked": ("bert", {**SIZE, "n_classes": 0, "n_tags": 0}, {"max_length": 16}),
    "classification": ("bert", {**SIZE, "masked_tokens": False, "n_tags": 0}, {"labels": CLASSES, "max_length": 16}),
    "tagging": ("bert", {**SIZE, "masked_tokens": False, "n_classes": 0}, {"tags": TAGS, "max_length": 16}),
    "images": ("vit", {}, {"format": FORMAT.model_dump(mode="json")}),
    "forecasting": ("series", {}, {"format": SERIES.model_dump(mode="json")}),
}


def stored(folder: Path, task: str) -> Path:
    """The path of a checkpoint of that task."""
    variant, values, document = TASKS[task]
    model, path = small_model(variant, **values).float(), folder / task
    texts = task not in ("images", "forecasting")
    fingerprint = {"tokenizer": WORDS.fingerprint} if texts else {}
    config = {"model": model.config.model_dump(mode="json"), "task": task, **document, **fingerprint}
    weights = {name: weight.detach() for name, weight in weights_of(model).items()}
    save_checkpoint(path, config=config, tokenizer=WORDS.to_json() if texts else {}, weights=weights)
    return path


def picture(folder: Path) -> Path:
    """A PNG of 8 × 12 pixels."""
    pixels = np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8)
    Image.fromarray(pixels).save(folder / "cat.png")
    return folder / "cat.png"


def table(folder: Path) -> Path:
    """A CSV of 15 days."""
    lines = [f"2026-01-{day:02d},{day * 0.5},{20 - day}" for day in range(1, 16)]
    (folder / "weather.csv").write_text("\n".join(["date,wind,sun", *lines, ""]), encoding="utf-8")
    return folder / "weather.csv"


GIVEN: dict[str, Callable[[Path], object]] = {
    "language": lambda folder: "a small dog sees",
    "masked": lambda folder: "a small [MASK] sees the cat",
    "classification": lambda folder: "a small dog",
    "tagging": lambda folder: "a small dog sees",
    "images": picture,
    "forecasting": table,
}
