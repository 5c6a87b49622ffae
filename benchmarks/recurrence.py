"""Attention instead of recurrence: the Transformer and an LSTM with attention, of equal size, side by side.

    python -m benchmarks.recurrence --data ../shared/data/multi30k/raw

Training speed on the same text in turns, and how well each copies sequences of a length it must carry all of; what is
measured replaces that part of ``benchmarks/results/recurrence.json``, whose part ``multi30k`` is ``benchmarks.quality``
with ``configs/multi30k.toml`` and ``configs/multi30k_recurrent.toml``.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from glassformer.cli.process import prepare_training
from glassformer.config import read_toml
from glassformer.predict.translator import Translator
from glassformer.storage.run_folder import RunFolder
from glassformer.train import parse_config, train
from glassformer.train.build import build
from glassformer.train.step import train_step

CONFIGS = Path(__file__).parents[1] / "configs"
KINDS = {"transformer": "multi30k", "recurrent": "multi30k_recurrent"}
TRANSFORMER = {"d_model": 128, "n_heads": 4, "d_ff": 256, "n_encoder_layers": 2, "n_decoder_layers": 2}
COPY = {
    "transformer": TRANSFORMER,
    "rotary": TRANSFORMER | {"positions": "rotary"},
    "recurrent": {"kind": "recurrent", "d_model": 128, "d_hidden": 130},
}
"""About 0.67 million parameters each."""
LENGTHS = (15, 30, 60, 120)
COPY_STEPS = 2000


def speed(data: Path, repeats: int, steps: int) -> dict[str, Any]:
    """Target tokens a second of training, in float32, the two in turns."""
    states, rates = {}, {}
    for name, config in KINDS.items():
        values = read_toml(CONFIGS / f"{config}.toml")
        values["data"] |= {"train": [str(data / "train")], "validation": []}
        values["train"]["precision"] = "float32"
        settings = parse_config(values, config)
        prepare_training(settings.train.threads)
        states[name] = build(settings)
        rates[name] = list[float]()
        _some_steps(states[name], 5)
    for _ in range(repeats):
        for name, state in states.items():
            rates[name].append(_some_steps(state, steps))
    return {
        name: {
            "parameters": sum(p.numel() for p in state.model.parameters()),
            "target_tokens_per_second": round(statistics.median(rates[name])),
            "range": [round(min(rates[name])), round(max(rates[name]))],
        }
        for name, state in states.items()
    }


def copying(seed: int) -> dict[str, Any]:
    """Trained on lengths to 120, tested on some: the share of sequences copied without a fault."""
    report = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = random.Random(seed)
        lines = [_sequence(made, made.randint(2, LENGTHS[-1])) for _ in range(20_000)]
        for side in ("in", "out"):
            (folder / f"train.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        tests = {length: [_sequence(made, length) for _ in range(200)] for length in LENGTHS}
        for kind, model in COPY.items():
            values = {
                "model": {**model, "dropout": 0.0},
                "text": {"kind": "word", "min_frequency": 1},
                "data": {"source": "in", "target": "out", "train": [str(folder / "train")], "batch_tokens": 2048},
                "optimizer": {"schedule": "cosine", "learning_rate": 2e-3, "warmup_steps": 100, "clip_norm": 1.0},
                "train": {"max_steps": COPY_STEPS, "label_smoothing": 0.0, "seed": seed},
            }
            config = parse_config(values, kind)
            prepare_training(config.train.threads)
            began, used = time.perf_counter(), time.process_time()
            for _ in train(config, RunFolder.create(folder / kind)):
                pass
            seconds, processor = time.perf_counter() - began, time.process_time() - used
            translator = Translator.load(folder / kind)
            exact = {}
            for length, texts in tests.items():
                found = translator.translate(texts, beam_size=1)
                exact[str(length)] = sum(a == b for a, b in zip(found, texts, strict=True)) / len(texts)
            report[kind] = {
                "exact": exact,
                "seconds": round(seconds, 1),
                "processor_seconds": round(processor, 1),
                "parameters": sum(p.numel() for p in translator.models[0].parameters()),
            }
            print(kind, report[kind], flush=True)
    return report


def _sequence(made: random.Random, length: int) -> str:
    return " ".join(made.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(length))


def _some_steps(state: Any, steps: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder) / "run")  # where a batch that fails would be kept
        began = time.perf_counter()
        tokens = sum(train_step(state, run).target_tokens for _ in range(steps))
        return tokens / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.en and train.de")
    parser.add_argument("--parts", nargs="+", choices=("training", "copying"), default=["training", "copying"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    arguments = parser.parse_args()
    measured: dict[str, Any] = {}
    if "training" in arguments.parts:
        measured["training"] = {"machine": describe(), **speed(arguments.data, arguments.repeats, arguments.steps)}
    if "copying" in arguments.parts:
        measured["copying"] = {"machine": describe(), **{str(seed): copying(seed) for seed in arguments.seeds}}
    path = Path(__file__).parent / "results" / "recurrence.json"
    report = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(report | measured, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main()
