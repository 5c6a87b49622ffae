"""The table of example tasks: every task but translation, with a run that trains in a second, and how it is used."""

import copy
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glassformer.storage.run_folder import RunFolder
from glassformer.train import RunConfig, parse_config
from tiny_run import run_to_the_end, write_lines

BERT = {"kind": "bert", "d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 1, "dropout": 0.0, "max_length": 16}
ANIMALS, VERBS = ["dog", "cat", "bird", "horse"], ["runs", "sleeps", "sings", "waits"]
SENTENCES = [f"the {animal} {verb}." for animal in ANIMALS for verb in VERBS]


@dataclass(frozen=True)
class TaskExample:
    """One task: its settings in a folder, the number of steps, and the use of its predictor."""

    settings: Callable[[Path], dict[str, Any]]
    steps: int
    predictor: str
    """Name of the class that ``glassformer.load`` returns."""
    shown: str
    """Pattern of what ``repr`` shows after the size of the model."""
    use: Callable[[Any], Any] | None = None
    """Numbers from a predictor; None if its engine is a setting of decoding."""


@dataclass(frozen=True)
class TinyTask:
    """``values`` are the settings of a run on files in ``folder``; ``run`` was trained with them."""

    folder: Path
    values: dict[str, Any]

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def config(self, **train: Any) -> RunConfig:
        values = copy.deepcopy(self.values)
        values["train"] |= train
        return parse_config(values, "tiny")

    def losses(self) -> list[float]:
        """Of the validations, in order; where there is no likelihood, the squared error."""
        found = [line for line in RunFolder.open(self.run).metrics() if line["event"] == "validated"]
        return [line.get("nll", line.get("mse")) for line in found]


def made(factory: pytest.TempPathFactory, task: str) -> TinyTask:
    """Made once a session."""
    os.environ["XDG_CACHE_HOME"] = str(factory.getbasetemp() / "cache")
    return _made(factory.getbasetemp(), task)


@cache
def _made(base: Path, task: str) -> TinyTask:
    folder = base / f"tiny_{task}"
    folder.mkdir()
    values = {
        "task": task,
        "optimizer": {"kind": "adamw", "schedule": "constant", "learning_rate": 0.01, "warmup_steps": 2},
        "train": {"max_steps": EXAMPLES[task].steps, "save_every": 10, "log_every": 10, "threads": 1},
        "validation": {"every": 10},
        **EXAMPLES[task].settings(folder),
    }
    tiny = TinyTask(folder, values)
    run_to_the_end(tiny.config(), tiny.run)
    return tiny


def _language(folder: Path) -> dict[str, Any]:
    text = write_lines(folder / "text.txt", SENTENCES * 6)
    model = {"kind": "gpt", "d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 2, "dropout": 0.0, "max_length": 24}
    data = {"train": [text], "validation_share": 0.1, "context": 16, "batch_size": 8}
    return {"model": model, "text": {"kind": "char"}, "data": data}


def _masked(folder: Path) -> dict[str, Any]:
    text = write_lines(folder / "text.txt", SENTENCES * 4)
    data = {"train": [text], "validation": [text], "documents": "line", "max_length": 16, "batch_tokens": 256}
    return {"model": BERT, "text": {"kind": "bpe", "vocab_size": 60}, "data": data}


def _classification(folder: Path) -> dict[str, Any]:
    rows = [f"{text}\t{'loud' if 'sing' in text else 'quiet'}" for text in SENTENCES]
    data = {"train": [write_lines(folder / "train.tsv", ["text\tlabel", *rows])], "max_length": 16, "batch_tokens": 128}
    text = {"kind": "word", "min_frequency": 1}
    return {"model": BERT | {"masked_tokens": False}, "text": text, "data": data | {"validation": data["train"]}}


def _tagging(folder: Path) -> dict[str, Any]:
    lines = [line for text in SENTENCES for line in _tagged(text)]
    data = {"train": [write_lines(folder / "train.conll", lines)], "max_length": 16, "batch_tokens": 128}
    text = {"kind": "char"}
    model = BERT | {"masked_tokens": False, "max_length": 32}
    return {"model": model, "text": text, "data": data | {"validation": data["train"], "max_length": 32}}


def _tagged(text: str) -> list[str]:
    article, noun, verb = text[:-1].split()
    return [f"{article} DET", f"{noun} NOUN", f"{verb} VERB", ""]


def _images(folder: Path) -> dict[str, Any]:
    random = np.random.default_rng(0)
    labels = np.arange(24) % 2
    pixels = random.integers(0, 100, (24, 8, 8)).astype(np.uint8) + (120 * labels[:, None, None]).astype(np.uint8)
    np.savez(folder / "train.npz", images=pixels, labels=np.array(["dark", "light"])[labels])
    model = {"kind": "vit", "patch_size": 4, "d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 1, "dropout": 0.0}
    path = str(folder / "train.npz")
    return {"model": model, "data": {"train": [path], "validation": [path], "batch_size": 8}}


def _forecasting(folder: Path) -> dict[str, Any]:
    hours = np.arange(120)
    values = np.stack([10 + 3 * np.sin(hours * np.pi / 6), 200 - 50 * np.cos(hours * np.pi / 6)], axis=1)
    dates = np.datetime64("2024-02-27T00") + hours
    rows = [f"{str(date).replace('T', ' ')}:00,{a:.4f},{b:.4f}" for date, (a, b) in zip(dates, values, strict=True)]
    path = write_lines(folder / "series.csv", ["date,low,high", *rows])
    model = {"kind": "series", "d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 1, "patch_length": 6}
    data = {"file": path, "context": 24, "horizon": 6, "split": [0.6, 0.2, 0.2], "batch_size": 8}
    return {"model": model | {"patch_stride": 3, "dropout": 0.0}, "data": data}


def _ramp(forecaster: Any) -> NDArray[np.float64]:
    """One table of rising values."""
    variables = len(forecaster.format.columns)
    return np.linspace(0, 9, forecaster.model.config.context * variables).reshape(1, -1, variables)


def _blank(classifier: Any) -> NDArray[np.uint8]:
    return np.zeros((classifier.format.height, classifier.format.width), np.uint8)


EXAMPLES = {
    "language": TaskExample(_language, 60, "Generator", r"vocabulary of \d+, context of 16"),
    "masked": TaskExample(
        _masked, 30, "Filler", r"vocabulary of \d+", lambda model: model.fill(["the [MASK] runs."], top=3)
    ),
    "classification": TaskExample(
        _classification,
        25,
        "Classifier",
        r"vocabulary of \d+, \d labels",
        lambda model: [one.probabilities for one in model.classify(["the dog runs.", "a bird"])],
    ),
    "tagging": TaskExample(
        _tagging,
        25,
        "Tagger",
        r"vocabulary of \d+, \d tags",
        lambda model: [one.probabilities for one in model.predictions([["the", "dog"]])[0]],
    ),
    "images": TaskExample(
        _images,
        20,
        "ImageClassifier",
        r"\d+×\d+ pixels, \d labels",
        lambda model: model.classify([_blank(model)])[0].probabilities,
    ),
    "forecasting": TaskExample(
        _forecasting,
        20,
        "Forecaster",
        r"\d variables, \d+ steps to \d+",
        lambda model: model.forecast(_ramp(model)),
    ),
}
