"""A GPT on this project's source code: byte-level here, of characters in nanoGPT, in the same time on the same text.

    git clone https://github.com/karpathy/nanoGPT NANOGPT
    python -m benchmarks.code_model --seconds 600 --nanogpt NANOGPT

Every tenth file is held out whole. Each side first runs a little to learn its speed, then for as many steps as fit the
time, so that its schedule ends with it. Both are measured alike: each token or character of the held-out text once,
from a window that slides by half its length. nanoGPT has the setting that its README gives for a CPU; without
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
TRIAL_SHARE = 0.05  # of the seconds, to learn how fast a side is
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
TRIAL_STEPS = 150  # more than the 100 in which its rate rises


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nanogpt", type=Path, help="a checkout of nanoGPT")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings over configs/code.toml")
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
    """``train.txt`` and ``held_out.txt``: whole files end to end; and their bytes."""
    parts: dict[str, list[str]] = {"train": [], "held_out": []}
    for number, path in enumerate(sorted((ROOT / "src").rglob("*.py"))):
        text = path.read_text(encoding="utf-8")
        parts["held_out" if number % HELD_OUT_EVERY == HELD_OUT_EVERY - 1 else "train"].append(text)
    for name, texts in parts.items():
        (folder / f"{name}.txt").write_text("".join(texts), encoding="utf-8")
    return {name: len("".join(texts).encode()) for name, texts in parts.items()}


def ours(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The command trains and evaluates. A trial that the clock ends says how many steps it takes."""
    run, trial = folder / "run", folder / "trial"
    data = {"train": [str(folder / "train.txt")], "validation": [str(folder / "held_out.txt")]}
    settings = [f"data.{key}={json.dumps(value)}" for key, value in data.items()]
    settings += ["data.validation_share=0", f"data.cache={folder / 'cache'}", f"train.seed={options.seed}"]
    settings += ["validation.every=1000000", *options.overrides]
    glassformer = [sys.executable, "-m", "glassformer"]
    train = [*glassformer, "train", str(ROOT / "configs" / "code.toml"), *settings]
    said = finished([*train, f"train.max_seconds={options.seconds * TRIAL_SHARE}", "--run", str(trial)])
    reached = re.findall(r"^step (\d+)", said, re.MULTILINE)
    steps = max(1, int(int(reached[-1]) / TRIAL_SHARE))
    began = time.perf_counter()
    finished([*train, f"train.max_steps={steps}", f"train.max_seconds={options.seconds}", "--run", str(run)])
    seconds = time.perf_counter() - began
    context = int(read_toml(run / "config.toml")["data"]["context"])
    evaluate = [*glassformer, "evaluate", str(run), str(folder / "held_out.txt"), "--stride", str(context // 2)]
    scores = json.loads(finished([*evaluate, "--json"]))
    return {"steps": steps, "seconds": round(seconds, 1), "overrides": options.overrides, "test": scores}


def nanogpt(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Its ``train.py`` in a process of its own, then every held-out character once."""
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
    for part in ("train.py", "model.py", "configurator.py", "config"):  # it reads all from where it runs
        (folder / part).symlink_to(checkout / part)

    def train(steps: int) -> str:
        values = {**NANOGPT_ON_CPU, "dataset": "code", "out_dir": str(folder / "nanogpt"), "max_iters": steps}
        values |= {"lr_decay_iters": steps, "eval_interval": steps}
        command = [sys.executable, "train.py", "config/train_shakespeare_char.py"]
        return finished([*command, *(f"--{key}={value}" for key, value in values.items())], folder)

    times = [float(found) for found in re.findall(r"time ([\d.]+)ms", train(TRIAL_STEPS))][5:-1]
    steps = max(TRIAL_STEPS, int(options.seconds * 1000 / statistics.median(times)))
    began = time.perf_counter()
    train(steps)
    seconds = time.perf_counter() - began
    script = str(ROOT / "benchmarks" / "contenders" / "nanogpt_likelihood.py")
    measured = [sys.executable, script, str(checkout), str(folder / "nanogpt" / "ckpt.pt"), str(data / "val.bin")]
    found = json.loads(finished(measured, folder).splitlines()[-1])  # before it, nanoGPT counts its parameters
    test = {
        "bits_per_character": found["nll"] / math.log(2) / found["characters"],
        "bits_per_byte": found["nll"] / math.log(2) / len(texts["held_out"][1:].encode()),
        "tokens": found["characters"],
    }
    return {"steps": steps, "seconds": round(seconds, 1), "test": test}


def finished(command: list[str], place: Path = ROOT) -> str:
    """What ``command`` prints; what it has to say of a failure ends this program."""
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, preexec_fn=ends_with_parent)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:4])} … ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout + done.stderr if "train" in command or "train.py" in command else done.stdout


if __name__ == "__main__":
    main()
