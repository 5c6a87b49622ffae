"""The plan of a training against the training itself: memory and time of a step on this machine.

    python -m benchmarks.plan memory [CONFIG=KEY,KEY …]
    python -m benchmarks.plan time --threads 1
    python -m benchmarks.plan paper

``memory``: peak of the resident memory of a child process that builds the run and takes three steps, beside the plan.
``time``: steps of full batches beside those predicted from an eighth and a quarter (or half) of the rows, in turn,
so that other work on the machine meets both. ``paper``: table 2 of the paper, the base model on 8 P100.
"""

import argparse
import ctypes
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from glassformer.cli.process import prepare_training
from glassformer.planning import Options, Training, find_device, make_plan, planned_training
from glassformer.planning.measure import measure_step, median_seconds, step, training_state
from glassformer.planning.parallel import Settings, memory, model_size
from glassformer.planning.step import record_step
from glassformer.train import read_config

CONFIGS: dict[str, list[str]] = {
    "multi30k": [],
    "shakespeare_char": ["data.batch_size=64"],
    "bert_small": [],
    "mnist": ["model.n_classes=10", "data.batch_size=16"],
    "etth1": ["model.n_variables=7"],
}
"""Configurations of ``configs/``, with settings for sizes that data decide or for a batch that fits the machine."""
PAIRS = 3
M_MMAP_THRESHOLD, M_MMAP_MAX = -3, -4
"""Parameters of glibc's ``mallopt``."""


def training_of(name: str, *settings: str) -> Training:
    return planned_training(read_config(f"configs/{name}.toml", [*CONFIGS[name], *settings]), name)


def planned_bytes(training: Training) -> float:
    """Peak of one process on PyTorch's route."""
    record = record_step(training, training.shape.rows, gpu=False)
    settings = Settings("ddp", 1, average=training.config.train.ema > 0, low_precision=False)
    return memory(model_size(training.values), settings, 1, record.activations, record.peak_gradients).total


def status(key: str) -> int:
    """Bytes of ``key`` in the status of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def child(name: str, malloc: str) -> None:
    """Take three steps and print the growth of the resident memory at its peak.

    ``malloc``: ``returned`` returns freed blocks of 64 KiB to the system; ``kept`` keeps them, as the command does.
    """
    if malloc == "kept":
        prepare_training(1)
    else:
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1 << 16)
        ctypes.CDLL(None).mallopt(M_MMAP_MAX, 1 << 20)
    training = training_of(name, "train.engine=torch", "train.precision=float32")
    small = {"d_model": 64, "d_ff": 64, "n_heads": 4, "n_layers": 1, "n_encoder_layers": 1, "n_decoder_layers": 1}
    values = training.values | {key: small[key] for key in small if key in training.values}
    step(training_state(replace(training, values=values), 1))  # loads libraries
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = status("VmRSS")
    state = training_state(training, training.shape.rows)
    for _ in range(3):
        step(state)
    print(status("VmHWM") - before)


def measure_memory(name: str) -> dict[str, Any]:
    measured = {}
    for malloc in ("returned", "kept"):
        command = [sys.executable, "-m", "benchmarks.plan", "child", name, malloc]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        measured[malloc] = int(done.stdout) / 2**20
    planned = planned_bytes(training_of(name, "train.engine=torch", "train.precision=float32")) / 2**20
    return {"config": name, "planned_mib": planned, "measured_mib": measured, "ratio": planned / measured["returned"]}


def measure_time(name: str, engine: str) -> dict[str, Any]:
    training = training_of(name, f"train.engine={engine}", "train.precision=float32", "train.accumulate=1")
    full = training_state(training, training.shape.rows)
    step(full)
    pairs = []
    for _ in range(PAIRS):
        first, second = measure_step(training), median_seconds([lambda: step(full)])[0]
        third = measure_step(training)
        each = [one.profile.at(training.shape.rows).seconds + one.update_seconds for one in (first, third)]
        pairs.append((statistics.mean(each), second))
    ratios = [planned / measured for planned, measured in pairs]
    return {"config": name, "engine": engine, "rows": training.shape.rows, "seconds": pairs, "ratios": ratios}


def paper() -> dict[str, Any]:
    """100,000 steps of 25,000 source and 25,000 target tokens took 12 hours (section 5.2)."""
    training = planned_training(read_config("configs/paper_base.toml", []), "paper_base")
    (estimate,) = make_plan(training, find_device("p100"), [8], Options()).estimates
    return asdict(estimate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["memory", "time", "paper", "child"])
    parser.add_argument("configs", nargs="*", default=list(CONFIGS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--engines", nargs="*", default=["torch", "auto"])
    arguments = parser.parse_args()
    if arguments.what == "child":
        return child(*arguments.configs)
    if arguments.what == "memory":
        runs = [partial(measure_memory, name) for name in arguments.configs]
    elif arguments.what == "time":
        prepare_training(arguments.threads)
        runs = [partial(measure_time, name, each) for name in arguments.configs for each in arguments.engines]
    else:
        runs = [paper]
    results = []
    for run in runs:
        results.append(run())
        print(json.dumps(results[-1]), file=sys.stderr, flush=True)
    machine = {"processor": platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()}
    print(json.dumps({"machine": machine, "results": results}, indent=1))
    return None


if __name__ == "__main__":
    main()
