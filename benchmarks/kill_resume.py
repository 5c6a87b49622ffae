"""Kill a training at random moments, resume it each time, and compare it with one that was never disturbed.

    python benchmarks/kill_resume.py --moments 10 --seed 1

Both runs go through ``python -m glassformer train`` on the same sentences of the grammar, with everything on whose
state could be lost. The kill is SIGKILL; every other one comes while a checkpoint is being written. Prints a JSON
report and exits with 1 unless weights, optimizer, random numbers and metrics are equal bit for bit.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import tomli_w
from safetensors.torch import load_file

from glassformer.demo_corpus.grammar import sample_corpus
from glassformer.storage.checkpoint import fingerprint, load_checkpoint
from glassformer.storage.run_folder import RunFolder

CLOCK = ("seconds", "validation_seconds", "source_tokens_per_second", "target_tokens_per_second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=10, help="how often the training is killed")
    parser.add_argument("--seed", type=int, default=1, help="of corpus, training and moments")
    parser.add_argument("--steps", type=int, help="training steps. [default: 24 a moment, at least 600]")
    options = parser.parse_args()
    options.steps = options.steps or max(600, 24 * options.moments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = write_config(folder, options.seed, options.steps)
        began = time.perf_counter()
        train(config, folder / "undisturbed").wait()
        seconds = time.perf_counter() - began
        kills = disturb(config, folder / "killed", options.moments, options.steps, random.Random(options.seed))
        report = compare(folder / "undisturbed", folder / "killed")
    report |= {"steps": options.steps, "seed": options.seed, "undisturbed_seconds": round(seconds, 1), "kills": kills}
    report["killed_while_saving"] = sum(kill["while_saving"] for kill in kills)
    print(json.dumps(report, indent=1))
    sys.exit(0 if report["equal"] else 1)


def write_config(folder: Path, seed: int, steps: int) -> Path:
    pairs = sample_corpus(2_100, seed)
    for name, part in {"train": pairs[100:], "validation": pairs[:100]}.items():
        (folder / f"{name}.en").write_text("".join(f"{pair.source}\n" for pair in part), encoding="utf-8")
        (folder / f"{name}.fr").write_text("".join(f"{pair.target}\n" for pair in part), encoding="utf-8")
    values = {
        "model": {
            "d_model": 64,
            "n_heads": 4,
            "d_ff": 128,
            "n_encoder_layers": 2,
            "n_decoder_layers": 2,
            "dropout": 0.2,
        },
        "text": {"vocab_size": 600, "bpe_dropout": 0.1},
        "data": {
            "source": "en",
            "target": "fr",
            "train": [str(folder / "train")],
            "validation": [str(folder / "validation")],
            "batch_tokens": 1000,
            "cache": str(folder / "cache"),
        },
        "optimizer": {
            "schedule": "cosine",
            "learning_rate": 2e-3,
            "warmup_steps": 50,
            "clip_norm": 1.0,
            "kind": "adamw",
            "weight_decay": 0.01,
        },
        "train": {
            "max_steps": steps,
            "seed": seed,
            "accumulate": 2,
            "ema": 0.99,
            "save_every": 7,
            "log_every": 10,
            "threads": 1,
        },
        "validation": {"every": 50, "max_sentences": 20, "metric": "loss"},
    }
    path = folder / "run.toml"
    path.write_text(tomli_w.dumps(values), encoding="utf-8")
    return path


def train(config: Path, run: Path, resume: bool = False) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "glassformer", "train", str(config), "--run", str(run)]
    with (run.parent / f"{run.name}.log").open("ab") as log:
        return subprocess.Popen(command + ["--resume"] * resume, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"})


def disturb(config: Path, run: Path, moments: int, steps: int, draw: random.Random) -> list[dict[str, Any]]:
    """Kill the run ``moments`` times on its way, each time after a random number of steps, then let it end."""
    kills: list[dict[str, Any]] = []
    for number in range(moments):
        process = train(config, run, resume=run.is_dir())
        goal = newest_step(run) + draw.randint(0, max(1, 2 * (steps - newest_step(run)) // (moments - number + 1)))
        saving = number % 2 == 1
        while process.poll() is None and newest_step(run) < min(goal, steps - 14):
            time.sleep(0.002)
        time.sleep(draw.random() * 0.2)
        while saving and process.poll() is None and not list(run.glob("checkpoints/.tmp-*")):
            time.sleep(0.0005)
        if process.poll() is not None:
            sys.exit(f"the run ended by itself, with {process.returncode}, before the kill at step {newest_step(run)}")
        process.send_signal(signal.SIGKILL)
        process.wait()
        half_saved = bool(list(run.glob("checkpoints/.tmp-*")) + list(run.glob("checkpoints/.old-*")))
        kills.append({"newest_checkpoint": newest_step(run), "while_saving": half_saved})
    train(config, run, resume=run.is_dir()).wait()
    return kills


def newest_step(run: Path) -> int:
    return max((int(path.name[5:]) for path in run.glob("checkpoints/step_*")), default=0)


def compare(first: Path, second: Path) -> dict[str, Any]:
    states = [state_of(first), state_of(second)]
    equal = {part: states[0][part] == states[1][part] for part in states[0]}
    return {"equal": all(equal.values()), "parts": equal, "weights": [state["weights"] for state in states]}


def state_of(run: Path) -> dict[str, Any]:
    newest = RunFolder.open(run).checkpoints()[-1]
    checkpoint = load_checkpoint(newest, training=True)
    assert checkpoint.training is not None
    values = checkpoint.training.values
    del values["counters"]["seconds"]
    best = RunFolder.open(run).best()
    lines = [line for line in RunFolder.open(run).metrics() if line["event"] != "started"]
    return {
        "weights": fingerprint(checkpoint.weights),
        "optimizer_and_random_numbers": fingerprint(load_file(newest / "training_state" / "tensors.safetensors")),
        "counters_and_batches": values,
        "best": best and [best.checkpoint.name, best.metric, best.value],
        "metrics": [{key: value for key, value in line.items() if key not in CLOCK} for line in lines],
    }


if __name__ == "__main__":
    main()
