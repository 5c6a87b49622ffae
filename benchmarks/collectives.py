"""Collectives of a training step of 64 to 4,096 processes, beside the formulas of ``glassformer plan``.

    python -m benchmarks.collectives
    python -m benchmarks.collectives memory

The code that trains runs as process 0 of a fake process group, with tensors that have no memory (DDP: with memory).
Nothing is sent. ``sent`` are the bytes that one process sends in forward and backward pass by ring algorithms, without
the sums of losses and of the gradient norm.

``memory``: growth of the resident memory of a child process at its peak, that builds a GPT of 355 M parameters whole,
or the shard of one of 4 processes.
"""

import argparse
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch

import glassformer
from benchmarks.plan import status
from glassformer.models.deferred_init import recording_init
from glassformer.models.registry import build_model
from glassformer.planning import Training, planned_training
from glassformer.planning.collectives import count_collectives, fake_processes
from glassformer.planning.parallel import Parallel, data_parallel_bytes, model_size, tensor_parallel_bytes
from glassformer.train import parse_config, read_config
from glassformer.train.division import REPLICA, make_mesh
from glassformer.train.sharded import initialize_shards, shard

WORLDS = (64, 512, 4096)
GPT = {
    "model": {"kind": "gpt", "d_model": 4096, "n_heads": 32, "d_ff": 16384, "n_layers": 32, "max_length": 2048},
    "text": {"vocab_size": 50257},
    "data": {"train": ["not read"], "context": 2048, "batch_size": 1},
}
"""The 6.7 B of Brown et al. 2020 (arXiv:2005.14165, table 2.1)."""
MEDIUM = {"kind": "gpt", "vocab_size": 50257, "d_model": 1024, "n_heads": 16, "d_ff": 4096, "n_layers": 24}
DIVISIONS: list[tuple[str, Parallel, int]] = [
    ("paper_base", "ddp", 1),
    ("gpt_6.7b", "fsdp", 1),
    ("gpt_6.7b", "ddp", 8),
    ("gpt_6.7b", "fsdp", 8),
    ("paper_base", "fsdp", 1),
    ("paper_base", "ddp", 8),
]


def training_of(name: str) -> Training:
    config = parse_config(GPT, name) if name == "gpt_6.7b" else read_config(f"configs/{name}.toml", [])
    return planned_training(config, name)


def planned_bytes(training: Training, world: int, parallel: Parallel, tensor: int) -> float:
    """The formulas, for one row and one batch a step."""
    share = model_size(training.values, tensor)
    between = tensor_parallel_bytes(training.values, tensor, training.shape.tokens, 4)
    return between + data_parallel_bytes(parallel, share, world // tensor)


def count(name: str, world: int, parallel: Parallel, tensor: int) -> dict[str, Any]:
    training, began = training_of(name), time.perf_counter()
    counted = count_collectives(training, world, parallel, tensor, rows=1)
    seconds, planned = time.perf_counter() - began, planned_bytes(training, world, parallel, tensor)
    return {
        "config": name,
        "world": world,
        "parallel": parallel,
        "tensor_parallel": tensor,
        "parameters": model_size(training.values).total,
        "calls": {f"{kind} of {n}": calls for (kind, n), calls in sorted(counted.calls.items())},
        "sent": counted.sent,
        "planned": planned,
        "ratio": counted.sent / planned,
        "seconds": round(seconds, 1),
    }


def child(how: str) -> None:
    """Build a model and print its bytes, and the growth of the resident memory at its peak."""
    with fake_processes(4):
        mesh = make_mesh(4, 1, torch.device("cpu"))
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
        before = status("VmRSS")
        if how == "whole":
            model = build_model(MEDIUM, "benchmark")
        else:
            with recording_init() as record:
                model = build_model(MEDIUM, "benchmark")
            record.name_weights(model)
            shard(model, mesh[REPLICA], low_precision=False)
            model.to_empty(device="cpu")
            initialize_shards(model, record)
        print(4 * sum(p.numel() for p in model.parameters()), status("VmHWM") - before)


def measure_memory() -> list[dict[str, Any]]:
    results = []
    for how in ("whole", "sharded"):
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.collectives", "child", how]
        model, peak = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
        results.append({"built": how, "model_mib": model / 2**20, "peak_mib": peak / 2**20})
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["count"])
    parser.add_argument("--worlds", type=int, nargs="*", default=list(WORLDS))
    arguments = parser.parse_args()
    if arguments.what[0] == "child":
        return child(arguments.what[1])
    warnings.simplefilter("ignore", FutureWarning)  # of DDP, about an argument
    results = measure_memory() if arguments.what == ["memory"] else []
    for name, parallel, tensor in DIVISIONS if arguments.what == ["count"] else []:
        for world in arguments.worlds:
            results.append(count(name, world, parallel, tensor))
            print(json.dumps(results[-1]), file=sys.stderr, flush=True)
    versions = {"torch": torch.__version__, "glassformer": glassformer.__version__}
    print(json.dumps({"versions": versions, "results": results}, indent=1))
    return None


if __name__ == "__main__":
    main()
