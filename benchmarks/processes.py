"""Two processes of one thread beside one process of two: tokens a second, and the time for the exchange of gradients.

    python -m benchmarks.processes --steps 60 --turns 3 --output benchmarks/results/processes.json \\
        configs/multi30k_quick.toml data.train='["DIR/train"]' data.validation=[]

The same configuration in turns, without saving. ``exchange`` is the share of a step in which gradients travel, whether
or not computation goes on meanwhile. ``exposed`` is the share of a step that the exchange costs: the same steps once
more with gradients that stay where they are. The other exchange of a step, of some numbers at its end, counts as
computation. Medians over the turns; the machine should be idle.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

import glassformer.train.reduction
from benchmarks import machine
from glassformer.cli.process import prepare_training
from glassformer.storage.run_folder import RunFolder
from glassformer.train import Progress, Stepped, read_config
from glassformer.train.loop import train

VARIANTS = {
    "1 process, 2 threads": {"size": 1, "threads": 2},
    "2 processes, 1 thread": {"size": 2, "threads": 1},
    "2 processes, 1 thread, gradients stay": {"size": 2, "threads": 1, "stay": True},
}


class InFlight:
    """Time in which at least one exchange of gradients is under way."""

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []

    def watch(self, exchange: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        began = time.perf_counter()
        work = exchange(*arguments, **options)
        if work is None:
            self.spans.append((began, time.perf_counter()))
        else:
            work.get_future().add_done_callback(lambda _: self.spans.append((began, time.perf_counter())))
        return work

    def seconds(self) -> float:
        """Length of the union of all spans."""
        total, until = 0.0, 0.0
        for began, ended in sorted(self.spans):
            total += max(0.0, ended - max(began, until))
            until = max(until, ended)
        return total


EXCHANGES = (dist, "all_reduce"), (dist, "all_to_all_single"), (glassformer.train.reduction, "GATHER")
"""The collectives that sum gradients."""


def stays(tensor: torch.Tensor, *_: Any, **options: Any) -> Any:
    """An exchange that does nothing, and is complete."""
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result([tensor])
    return mock.Mock(get_future=lambda: future)


@contextmanager
def group(rank: int, size: int, folder: Path) -> Iterator[None]:
    if size > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    yield
    if size > 1:
        dist.barrier()
        dist.destroy_process_group()


def work(options: dict[str, Any], rank: int, folder: Path) -> None:
    """One process: train, and write what rank 0 has measured."""
    prepare_training(options["threads"])
    unsaved = ["train.max_steps=1000000", "train.save_every=1000000", "validation.every=1000000", "train.log_every=10"]
    config = read_config(options["config"], [*options["overrides"], *unsaved, "train.threads=0"])
    in_flight, rates, steps = InFlight(), [], 0
    began = 0.0
    with group(rank, options["size"], folder), ExitStack() as stack:
        for place, name in EXCHANGES:
            exchange = stays if options.get("stay") else partial(in_flight.watch, getattr(place, name))
            stack.enter_context(mock.patch.object(place, name, exchange))
        run = RunFolder.create(folder / "run") if rank == 0 else RunFolder(folder / "run")
        for event in train(config, run, each_step=True):
            if isinstance(event, Progress):
                rates.append(event.target_tokens_per_second)
            if isinstance(event, Stepped) and event.step == 20:  # the first ones allocate and compile
                rates.clear()
                in_flight.spans.clear()
                began = time.perf_counter()
            if isinstance(event, Stepped) and event.step == 20 + options["steps"]:
                steps = options["steps"]
            if steps and isinstance(event, Progress):
                break
        seconds = time.perf_counter() - began
    if rank == 0:
        result = {"tokens_per_second": statistics.median(rates), "step_seconds": seconds / steps}
        result["exchange_seconds"] = in_flight.seconds() / steps
        (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    os._exit(0)  # threads of PyTorch may abort while Python shuts down


def measure(variant: dict[str, Any]) -> dict[str, float]:
    """Start the processes of a variant and return what the first one has measured."""
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "GOMP_SPINCOUNT": "2000"}
    environment.pop("OMP_NUM_THREADS", None)
    with tempfile.TemporaryDirectory(prefix="processes-") as folder:
        program = [sys.executable, "-m", "benchmarks.processes", "--worker", json.dumps(variant), "--folder", folder]
        processes = [
            subprocess.Popen([*program, "--rank", str(rank)], env=environment) for rank in range(variant["size"])
        ]
        codes = [process.wait() for process in processes]
        if any(codes):
            sys.exit(f"a process ended with {codes}")
        return json.loads(Path(folder, "result.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?")
    parser.add_argument("overrides", nargs="*", help="settings, such as train.precision=float32")
    parser.add_argument("--steps", type=int, default=60, help="steps that count, a multiple of 10")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--output", type=Path)
    for name, kind in {"worker": json.loads, "rank": int, "folder": Path}.items():
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.rank, options.folder)
    given = {"config": options.config, "overrides": options.overrides, "steps": options.steps}
    results: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
    for _ in range(options.turns):
        for name, variant in VARIANTS.items():
            results[name].append(measure(variant | given))
            print(name, json.dumps(results[name][-1]), file=sys.stderr, flush=True)
    medians = {
        name: {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
        for name, turns in results.items()
    }
    one, two, stay = medians.values()
    summary = {
        "speedup": round(two["tokens_per_second"] / one["tokens_per_second"], 3),
        "exchange": round(two["exchange_seconds"] / two["step_seconds"], 3),
        "exposed": round(1 - stay["step_seconds"] / two["step_seconds"], 3),
    }
    report = {"machine": machine.describe(), "settings": given, **summary, "medians": medians, "turns": results}
    if options.output:
        options.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(summary | {"medians": medians}, indent=1))


if __name__ == "__main__":
    main()
