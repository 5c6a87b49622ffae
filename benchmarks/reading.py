"""Files that a reader opens: for the Transformer, and for one training step; predicates and implementations.

    python -m benchmarks.reading --data ../shared/data/multi30k/raw/train

A file counts if code of it runs (outside of imports). ``--engine`` is that of the training step: ``native`` adds the
files of C++ that the step reaches, ``torch`` is without kernels, and ``none`` leaves the setting out, for versions that
have none (there ``CXX=false`` was the way without kernels).
"""

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import glassformer
from glassformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from glassformer.storage.run_folder import RunFolder
from glassformer.train import parse_config
from glassformer.train.build import build
from glassformer.train.step import train_step

SOURCE = Path(glassformer.__file__).parent
SIZES = {"d_model": 64, "n_heads": 2, "d_ff": 128, "n_encoder_layers": 1, "n_decoder_layers": 1}


def files_run(work: Callable[[], Any]) -> list[str]:
    """Files of the package of which a function runs during ``work``."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(str(SOURCE)):
            found.add(str(Path(path).relative_to(SOURCE)))

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return sorted(found)


def lines(files: list[str]) -> int:
    return sum(len((SOURCE / name).read_text(encoding="utf-8").splitlines()) for name in files)


def transformer() -> list[str]:
    """Files of ``layers`` and ``models`` that a forward pass in training runs."""
    model = EncoderDecoder(EncoderDecoderConfig(vocab_size=40, **SIZES)).train()
    sentences = torch.tensor([[1, 1, 2, 2, 0]])
    ids = torch.tensor([[5, 6, 7, 8, 0]])
    found = files_run(lambda: model(ids, ids, sentences, sentences))
    return [name for name in found if name.startswith(("layers", "models", "kernels"))]


def step(data: Path, engine: str, folder: Path) -> list[str]:
    """Files that one training step runs; those that it reads tables from or calls in C++ are not among them."""
    values = {
        "model": SIZES,
        "text": {"vocab_size": 500},
        "data": {"source": "en", "target": "de", "train": [str(data)], "cache": str(folder / "cache")},
        "train": {"max_steps": 10} | ({} if engine == "none" else {"engine": engine}),
    }
    state, run = build(parse_config(values)), RunFolder.create(folder / "run")
    train_step(state, run)
    return files_run(lambda: train_step(state, run))


def cpp() -> list[str]:
    """Files of C++ in which the functions of a training step are, by the includes."""
    (folder,) = {path.parent for path in SOURCE.rglob("train_stack.cpp")}
    included, waiting = set[str](), [name for name in STEP_UNITS if (folder / name).exists()]
    while waiting:
        if (name := waiting.pop()) not in included:
            included.add(name)
            waiting += re.findall(r'#include "(.+)"', (folder / name).read_text())
    return sorted(included)


STEP_UNITS = (
    "attention.cpp",
    "embedding.cpp",
    "optimizer.cpp",
    "stack_backward.cpp",
    "stack_forward.cpp",
    "train_loss.cpp",
    "train_stack.cpp",
)
"""Translation units that a training step calls; earlier versions lack some."""


def places(pattern: str) -> dict[str, int]:
    """Matches of ``pattern`` by file of Python."""
    found = {path: len(re.findall(pattern, path.read_text(encoding="utf-8"))) for path in SOURCE.rglob("*.py")}
    return {str(path.relative_to(SOURCE)): count for path, count in sorted(found.items()) if count}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="stem of a parallel corpus, en and de")
    parser.add_argument("--engine", default="native", choices=["native", "torch", "none"])
    arguments = parser.parse_args()
    reading = transformer()
    with tempfile.TemporaryDirectory() as folder:
        training = step(arguments.data, arguments.engine, Path(folder))
    kernels = any(name.startswith(("native", "kernels")) for name in training) and arguments.engine != "torch"
    report = {
        "transformer": {"files": len(reading), "lines": lines(reading), "names": reading},
        "training step": {"python": training, "cpp": cpp() if kernels else []},
        "files of a training step": len(training) + (len(cpp()) if kernels else 0),
        "places that ask tracing()": places(r"(?<!def )\btracing\(\)(?!``)"),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
