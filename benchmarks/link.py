"""The planned time of a step beside the measured one, for two machines on a link of limited rate. Linux, as root.

    sudo python -m benchmarks.link --data ../shared/data/tinyshakespeare/input.txt

The machines are network namespaces, each with one process of one thread; ``tc`` limits the cable between them with a
token bucket filter (tbf). The plan measures a step of one process with fewer rows, and computes the communication from
the rate of the link. Plan and training alternate, once for each rate and turn. Prints a JSON report.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import tomli_w

from benchmarks import machine
from benchmarks.two_machines import MACHINES, Trial, call, network
from glassformer.cli.process import prepare_training
from glassformer.planning import Options, make_plan, planned_training
from glassformer.planning.measure import measure_machine
from glassformer.train import read_config

RATES = (1000, 200, 50)
"""Megabits per second."""
STEPS, SKIPPED = 30, 10
"""Steps of a training, and those at its beginning that are not counted."""
SIZES = {"d_model": 256, "n_heads": 4, "d_ff": 1024, "n_layers": 4, "max_length": 128, "dropout": 0.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="text file")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rates", type=int, nargs="+", default=list(RATES), help="megabits per second")
    parser.add_argument("--output", type=Path, help="file for the report")
    parser.add_argument("--plan", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--config", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plan:
        print(planned_seconds(options.config, options.plan))
        return
    report: dict[str, Any] = {"machine": machine.describe(), "settings": {"steps": STEPS, **SIZES}, "results": []}
    with tempfile.TemporaryDirectory(prefix="link-") as name, network():
        folder = Path(name)
        write_config(folder, options.data.resolve())
        for rate in options.rates:
            limit(rate)
            pairs = []
            for turn in range(options.turns):
                planned = planned_in_child(folder / "config.toml", rate)
                pairs.append((planned, measured_seconds(folder, f"{rate}-{turn}")))
            ratios = [planned / measured for planned, measured in pairs]
            row = {"mbit": rate, "planned_and_measured": pairs, "ratios": ratios, "middle": statistics.median(ratios)}
            report["results"].append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
    text = json.dumps(report, indent=1)
    if options.output:
        options.output.write_text(text + "\n", encoding="utf-8")
    print(text)


def write_config(folder: Path, data: Path) -> None:
    values = {
        "model": {"kind": "gpt", **SIZES},
        "text": {"kind": "bpe", "vocab_size": 1000},
        "data": {"train": [str(data)], "context": SIZES["max_length"], "batch_size": 16},
        "train": {"max_steps": STEPS, "log_every": 5, "threads": 1, "precision": "float32"},
    }
    (folder / "config.toml").write_text(tomli_w.dumps(values), encoding="utf-8")


def limit(mbit: int) -> None:
    """Limit what each machine sends."""
    for name in MACHINES:
        device = f"glassformer-{name}"
        bucket = ("tbf", "rate", f"{mbit}mbit", "burst", "256kb", "latency", "200ms")
        call("tc", "-n", device, "qdisc", "replace", "dev", device, "root", *bucket)


def planned_in_child(config: Path, mbit: int) -> float:
    program = [sys.executable, "-m", "benchmarks.link", "--data", "-", "--config", str(config), "--plan", str(mbit)]
    return float(subprocess.run(program, check=True, capture_output=True, text=True).stdout)


def planned_seconds(config: Path, mbit: int) -> float:
    """Seconds of a step by two machines of one thread each."""
    prepare_training(1)
    training = planned_training(read_config(str(config), []), str(config))
    device, measured = measure_machine(training)
    bandwidth = mbit / 8000  # GB/s
    linked = device.model_copy(update={"link": bandwidth, "network": bandwidth, "node": 1})
    (estimate,) = make_plan(training, linked, [2], Options(), measured).estimates
    return estimate.step_seconds


def measured_seconds(folder: Path, name: str) -> float:
    """Seconds of a step after the first ``SKIPPED``."""
    trial = Trial(folder, name, elastic=False)
    for each in MACHINES:
        trial.start(each)
    trial.wait_for(trial.ended, 600)
    if any(process.returncode for process in trial.processes.values()):
        raise RuntimeError("\n".join(trial.log(each)[-2000:] for each in MACHINES))
    seconds = {event["step"]: event["seconds"] for event in trial.events() if event["event"] == "progress"}
    return float(seconds[STEPS] - seconds[SKIPPED]) / (STEPS - SKIPPED)


if __name__ == "__main__":
    main()
