"""A run small enough to be trained in a second or two, for the tests of what goes around a model."""

import copy
import json
import os
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from safetensors.torch import load_file

from glassformer.demo_corpus.grammar import sample_corpus
from glassformer.predict.translator import Translator
from glassformer.storage.checkpoint import fingerprint, load_checkpoint
from glassformer.storage.run_folder import RunFolder
from glassformer.train import Event, RunConfig, parse_config, train

CLOCK = {"seconds", "validation_seconds", "source_tokens_per_second", "target_tokens_per_second", "crc32"}
"""Fields of ``metrics.jsonl`` that depend on the clock, with the checksum of the line."""


@dataclass(frozen=True)
class TinyRun:
    """``values`` are the settings of a run on ``folder``'s corpus; ``run`` is one that was trained with them."""

    folder: Path
    values: dict[str, Any]

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @cached_property
    def translator(self) -> Translator:
        return Translator.load(self.run)

    def settings(self, changes: dict[str, Any] | None = None) -> dict[str, Any]:
        """``values`` with ``{"train.max_steps": 3}`` over them."""
        values = copy.deepcopy(self.values)
        for name, value in (changes or {}).items():
            section, key = name.split(".")
            values.setdefault(section, {})[key] = value
        return values

    def config(self, changes: dict[str, Any] | None = None) -> RunConfig:
        return parse_config(self.settings(changes), "tiny")

    def write_config(self, path: Path, changes: dict[str, Any] | None = None) -> Path:
        path.write_text(tomli_w.dumps(self.settings(changes)), encoding="utf-8")
        return path


def made(factory: pytest.TempPathFactory) -> TinyRun:
    """Made once a session. The user's own cache folder is left alone from here on."""
    return _made(factory.getbasetemp())


@cache
def _made(base: Path) -> TinyRun:
    folder = base / "tiny"
    folder.mkdir()
    os.environ["XDG_CACHE_HOME"] = str(base / "cache")
    pairs = sample_corpus(310, seed=5)
    for name, part in {"train": pairs[10:], "validation": pairs[:10]}.items():
        for language, texts in (("en", [p.source for p in part]), ("fr", [p.target for p in part])):
            (folder / f"{name}.{language}").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    values = {
        "model": {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_encoder_layers": 1, "n_decoder_layers": 2},
        "text": {"vocab_size": 300},
        "data": {
            "source": "en",
            "target": "fr",
            "train": [str(folder / "train")],
            "validation": [str(folder / "validation")],
            "batch_tokens": 500,
        },
        "optimizer": {"schedule": "constant", "learning_rate": 0.01, "warmup_steps": 5},
        "train": {"max_steps": 160, "save_every": 40, "log_every": 40, "threads": 1},
        "validation": {"every": 80, "max_sentences": 4},
        "decoding": {"beam_size": 2, "max_extra": 5},
    }
    tiny = TinyRun(folder, values)
    run_to_the_end(tiny.config(), tiny.run)
    return tiny


def run_to_the_end(config: RunConfig, path: Path, resume: bool = False) -> list[Event]:
    return list(train(config, RunFolder.open(path) if resume else RunFolder.create(path), resume))


def write_lines(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def state_of(path: Path) -> dict[str, Any]:
    """Everything that training has made of a run, down to the last bit, without what the clock decides."""
    newest = RunFolder.open(path).checkpoints()[-1]
    checkpoint = load_checkpoint(newest, training=True)
    assert checkpoint.training is not None
    values = copy.deepcopy(checkpoint.training.values)
    del values["counters"]["seconds"]
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    best = RunFolder.open(path).best()
    return {
        "checkpoints": [folder.name for folder in RunFolder.open(path).checkpoints()],
        "weights": fingerprint(checkpoint.weights),
        "optimizer, random numbers, live weights": fingerprint(
            load_file(newest / "training_state" / "tensors.safetensors")
        ),
        "counters and batches": values,
        "best": best and (best.checkpoint.name, best.value),
        "metrics": [
            {key: value for key, value in line.items() if key not in CLOCK}
            for line in lines
            if line["event"] != "started"
        ],
    }
