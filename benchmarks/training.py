"""Training speed beside peers: same text, segmentation, sizes and token budget, alternating in one run.

    python -m benchmarks.training --data ../shared/data/multi30k/raw/train

Useful work is the matrix products of tokens that are not padding, forward × 3, the same formula for everyone; its share
is that of the ceiling measured before each contender's turn.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.contenders.ending import ends_with_parent
from benchmarks.contenders.sizes import SIZES
from benchmarks.machine import ceiling, describe, device
from benchmarks.peers import PeerError, python_of
from glassformer.models.registry import build_model, flops_per_token
from glassformer.train import parse_config
from glassformer.train.build import build

HERE = Path(__file__).parent
ON = device()
RESULTS = HERE / "results" / ("training.json" if ON == "cpu" else "training_gpu.json")
CONTENDERS = {
    "glassformer": ("glassformer_training.py", None),
    "torch.nn.Transformer": ("torch_transformer.py", None),
    "MarianMTModel": ("huggingface_training.py", "transformers"),
    "Marian": ("marian_training.py", "marian"),
    "OpenNMT-py": ("opennmt_training.py", "opennmt"),
}
CPU_FLOAT32_ONLY = {"Marian", "OpenNMT-py"}
"""As they are measured here."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="prefix of the training text: PREFIX.en and PREFIX.de")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["small"] if ON == "cpu" else ["base", "big"])
    parser.add_argument(
        "--tokens", type=int, default=2048 if ON == "cpu" else 32768, help="padded ones of a batch a side"
    )
    parser.add_argument("--precisions", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    given = " ".join(sys.argv[1:]).replace(options.data, "DIR/train")  # where the text lies is nobody's business
    report: dict[str, Any] = {
        "command": f"python -m benchmarks.training {given}",
        "machine": describe(ON),
        "results": [],
    }
    report["left_out"] = left_out = {}
    with tempfile.TemporaryDirectory() as folder:
        vocab = write_batches(options.data, options.tokens, Path(folder) / "batches.npz")
        for size in options.sizes:
            for precision in options.precisions:
                report["results"] += compare(options, size, precision, vocab, Path(folder) / "batches.npz", left_out)
                RESULTS.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def write_batches(prefix: str, tokens: int, path: Path) -> int:
    """The batches that contenders without packing train on: length buckets of so many padded tokens a side."""
    values = {
        "model": {"d_model": 8, "n_heads": 1},
        "text": {"vocab_size": 8000},
        "data": {"source": "en", "target": "de", "train": [prefix], "batch_tokens": tokens, "row_tokens": 0},
    }
    state = build(parse_config(values, "benchmark"))
    arrays = {}
    for number in range(len(state.batches)):
        batch = state.batches.next()
        start = batch.target[:, :1]
        ends = torch.cat([start, batch.labels], dim=1)
        arrays |= {f"source_{number}": batch.source.numpy(), f"target_{number}": ends.numpy()}
    np.savez(path, **arrays)
    return state.task.tokenizers.target.vocab_size


def compare(
    options: argparse.Namespace, size: str, precision: str, vocab: int, batches: Path, left_out: dict[str, str]
) -> list[dict[str, Any]]:
    """What each contender reaches; ``left_out`` gets those that cannot be installed or run here, and why."""
    work = useful_flops(size, vocab)
    every = precision == "float32" and ON == "cpu"
    able = [name for name in options.contenders if every or name not in CPU_FLOAT32_ONLY]
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in able}
    for _ in range(options.repeats):
        for name in [name for name in able if name not in left_out]:
            top = ceiling(getattr(torch, precision), ON)
            try:
                done = run(name, options, size, precision, vocab, batches)
            except PeerError as error:
                left_out[name] = str(error)
                print(f"{name} is left out: {error}", file=sys.stderr)
                continue
            useful = (done["source"] * work["source"] + done["target"] * work["target"]) / done["seconds"] / 1e9
            rate = done["target"] / done["seconds"]
            share = useful / max(top, ceiling(getattr(torch, precision), ON))
            speeds = {"source_per_s": done["source"] / done["seconds"], "target_per_s": rate, "gflops": useful}
            turns[name].append({**speeds, "share": share, "peak_mib": done["peak_mib"]})
            print(f"{size} {precision} {name:22} {rate:6.0f} target tokens/s, {share:.0%} of the ceiling", flush=True)
    return [
        {"size": size, "precision": precision, "name": name, **summary(each)} for name, each in turns.items() if each
    ]


def run(name: str, options: argparse.Namespace, size: str, precision: str, vocab: int, batches: Path) -> dict[str, Any]:
    script, environment = CONTENDERS[name]
    command = [python_of(environment), str(HERE / "contenders" / script), "--batches", str(batches), "--size", size]
    command += ["--vocab", str(vocab), "--precision", precision, "--seconds", str(options.seconds)]
    command += ["--tokens", str(options.tokens), "--device", ON]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "TRAIN": options.data},
        check=False,
        preexec_fn=ends_with_parent,
    )
    if done.returncode:
        raise (SystemExit if name == "glassformer" else PeerError)(f"{name}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def useful_flops(size: str, vocab: int) -> dict[str, float]:
    """Of a source and of a target token, forward and backward, products with weights only."""
    sizes = dict(SIZES[size])
    n_layers = sizes.pop("n_layers")
    layers = {"n_encoder_layers": n_layers, "n_decoder_layers": n_layers}
    with torch.device("meta"):
        model = build_model({"kind": "encoder_decoder", **sizes, **layers, "vocab_size": vocab}, "benchmark")
    flops = flops_per_token(model)
    return {"source": 3 * flops["source_token"], "target": 3 * flops["target_token"]}


def summary(turns: list[dict[str, float]]) -> dict[str, Any]:
    return {
        key: {"median": round(statistics.median(values), 3), "values": [round(value, 3) for value in values]}
        for key in turns[0]
        if (values := [turn[key] for turn in turns])
    }


if __name__ == "__main__":
    main()
