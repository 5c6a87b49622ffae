"""One side of ``benchmarks.family_training``: trains for as long as each line of its input says, in seconds."""

import sys

from glassformer.cli import process

if sys.argv[1] == "glassformer":
    process.shorten_waiting()  # as the command, before PyTorch is imported

import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.contenders.plain_family import PlainModel, plain_step
from glassformer.storage.run_folder import RunFolder
from glassformer.train import parse_config
from glassformer.train.build import build
from glassformer.train.state import TrainState
from glassformer.train.step import train_step


def main() -> None:
    side, values = sys.argv[1], json.loads(sys.argv[2])
    if side == "glassformer":
        process.prepare_training(threads=0)
    precision = values["train"]["precision"]
    if side != "glassformer":
        values["train"]["precision"] = "float32"  # its batches alone are used
    state = build(parse_config(values, "benchmark"))
    step = our_step(state) if side == "glassformer" else their_step(state, precision == "bfloat16")
    for _ in range(3):
        step()
    print(json.dumps([str(route) for route in state.routes]), flush=True)
    for line in sys.stdin:
        end, rates = time.perf_counter() + float(line), list[float]()
        while (began := time.perf_counter()) < end:
            targets = step()
            rates.append(targets / (time.perf_counter() - began))
        print(statistics.median(rates), flush=True)  # of steps: a shared machine holds some of them up


def our_step(state: TrainState) -> Any:
    run = RunFolder(Path(os.devnull))
    return lambda: train_step(state, run).target_tokens


def their_step(state: TrainState, bfloat16: bool) -> Any:
    step = plain_step(PlainModel(state.model_config).train(), bfloat16)

    def on_next() -> int:
        batch = state.batches.next()
        step(batch)
        return batch.n_targets

    return on_next


if __name__ == "__main__":
    main()
