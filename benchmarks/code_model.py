"""Compare a byte-level GPT on this project's source code with nanoGPT's character model, at equal training time.

    git clone https://github.com/karpathy/nanoGPT NANOGPT
    python -m benchmarks.code_model --seconds 600 --nanogpt NANOGPT

Every tenth file is held out. A short trial measures the speed of each side. The side then trains for as many steps as
fit the time, so its schedule ends with the training. Both evaluations predict each token or character of the held-out
text once, from a window that slides by half its length. nanoGPT uses the CPU settings of its README. Without
``--nanogpt`` only this project is measured. The result is ``benchmarks/results/code_model.json``.
"""

import argparse
import json
import math
import pickle
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contenders.ending import ends_with_parent
from benchmarks.machine import describe
from glassformer.config import read_toml

ROOT = Path(__file__).parents[1]
HELD_OUT_EVERY = 10
TRIAL_SHARE = 0.05  # share of --seconds that measures the speed of a side
NANOGPT_ON_CPU = {
    "device": "cpu",
    "compile": False,
    "eval_iters": 20,
    "log_interval": 1,
    "block_size": 64,
    "batch_size": 12,
    "n_layer": 4,
    "n_head": 4,
    "n_embd": 128,
    "dropout": 0.0,
    "always_save_checkpoint": True,
}
TRIAL_STEPS = 150  # longer than nanoGPT's warmup of 100 steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nanogpt", type=Path, help="a checkout of nanoGPT")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings that override configs/code.toml")
    options = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sizes = write_texts(folder)
        report: dict[str, Any] = {
            "command": f"python -m benchmarks.code_model --seconds {options.seconds:g} --seed {options.seed}",
            "machine": describe(),
            "text": sizes,
        }
        report["glassformer"] = ours(folder, options)
        print(json.dumps(report["glassformer"]), flush=True)
        if options.nanogpt:
            report["nanogpt"] = nanogpt(folder, options)
            print(json.dumps(report["nanogpt"]), flush=True)
    results = ROOT / "benchmarks" / "results" / "code_model.json"
    results.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def write_texts(folder: Path) -> dict[str, int]:
    """Write ``train.txt`` and ``held_out.txt``, each a concatenation of files; return their sizes in bytes."""
    parts: dict[str, list[str]] = {"train": [], "held_out": []}
    for number, path in enumerate(sorted((ROOT / "src").rglob("*.py"))):
        text = path.read_text(encoding="utf-8")
        parts["held_out" if number % HELD_OUT_EVERY == HELD_OUT_EVERY - 1 else "train"].append(text)
    for name, texts in parts.items():
        (folder / f"{name}.txt").write_text("".join(texts), encoding="utf-8")
    return {name: len("".join(texts).encode()) for name, texts in parts.items()}


def ours(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Train and evaluate with the command. A trial limited in time determines the number of steps."""
    run, trial = folder / "run", folder / "trial"
    data = {"train": [str(folder / "train.txt")], "validation": [str(folder / "held_out.txt")]}
    settings = [f"data.{key}={json.dumps(value)}" for key, value in data.items()]
    settings += ["data.validation_share=0", f"data.cache={folder / 'cache'}", f"train.seed={options.seed}"]
    settings += ["validation.every=1000000", *options.overrides]
    glassformer = [sys.executable, "-m", "glassformer"]
    train = [*glassformer, "train", str(ROOT / "configs" / "code.toml"), *settings]
    output = run_command(
        [*train, f"train.max_seconds={options.seconds * TRIAL_SHARE}", "--run", str(trial)], errors=True
    )
    trial_steps = re.findall(r"^step (\d+)", output, re.MULTILINE)
    steps = max(1, int(int(trial_steps[-1]) / TRIAL_SHARE))
    began = time.perf_counter()
    run_command([*train, f"train.max_steps={steps}", f"train.max_seconds={options.seconds}", "--run", str(run)])
    seconds = time.perf_counter() - began
    context = int(read_toml(run / "config.toml")["data"]["context"])
    evaluate = [*glassformer, "evaluate", str(run), str(folder / "held_out.txt"), "--stride", str(context // 2)]
    scores = json.loads(run_command([*evaluate, "--json"]))
    return {"steps": steps, "seconds": round(seconds, 1), "overrides": options.overrides, "test": scores}


def nanogpt(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run nanoGPT's ``train.py``, then compute the likelihood of the held-out characters."""
    checkout = options.nanogpt.resolve()
    texts = {name: (folder / f"{name}.txt").read_text(encoding="utf-8") for name in ("train", "held_out")}
    data = folder / "data" / "code"
    data.mkdir(parents=True)
    characters = sorted({*texts["train"], *texts["held_out"]})
    ids = {character: id for id, character in enumerate(characters)}
    for name, file in (("train", "train.bin"), ("held_out", "val.bin")):
        np.array([ids[character] for character in texts[name]], np.uint16).tofile(data / file)
    names = {"vocab_size": len(characters), "itos": dict(enumerate(characters)), "stoi": ids}
    (data / "meta.pkl").write_bytes(pickle.dumps(names))
    for part in ("train.py", "model.py", "configurator.py", "config"):  # train.py reads them from its working directory
        (folder / part).symlink_to(checkout / part)

    def train(steps: int) -> str:
        values = {**NANOGPT_ON_CPU, "dataset": "code", "out_dir": str(folder / "nanogpt"), "max_iters": steps}
        values |= {"lr_decay_iters": steps, "eval_interval": steps}
        command = [sys.executable, "train.py", "config/train_shakespeare_char.py"]
        return run_command([*command, *(f"--{key}={value}" for key, value in values.items())], folder)

    times = [float(value) for value in re.findall(r"time ([\d.]+)ms", train(TRIAL_STEPS))][5:-1]
    steps = max(TRIAL_STEPS, int(options.seconds * 1000 / statistics.median(times)))
    began = time.perf_counter()
    train(steps)
    seconds = time.perf_counter() - began
    script = str(ROOT / "benchmarks" / "contenders" / "nanogpt_likelihood.py")
    command = [sys.executable, script, str(checkout), str(folder / "nanogpt" / "ckpt.pt"), str(data / "val.bin")]
    likelihood = json.loads(run_command(command, folder).splitlines()[-1])  # nanoGPT first prints its parameter count
    test = {
        "bits_per_character": likelihood["nll"] / math.log(2) / likelihood["characters"],
        "bits_per_byte": likelihood["nll"] / math.log(2) / len(texts["held_out"][1:].encode()),
        "tokens": likelihood["characters"],
    }
    return {"steps": steps, "seconds": round(seconds, 1), "test": test}


def run_command(command: list[str], folder: Path = ROOT, errors: bool = False) -> str:
    """Run ``command`` and return its output, with ``errors`` what it writes to stderr too. Exit if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, preexec_fn=ends_with_parent)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:4])} … ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout + done.stderr if errors else done.stdout


if __name__ == "__main__":
    main()
