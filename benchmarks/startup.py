"""How long it takes until something happens: processes started cold, several times.

python -m benchmarks.startup RUN
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.machine import describe

RESULTS = Path(__file__).parent / "results" / "startup.json"
CONFIG = """
model = {d_model = 16, n_heads = 2, d_ff = 32, n_encoder_layers = 1, n_decoder_layers = 1}
data = {source = "en", target = "de", train = ["train"]}
text = {kind = "word"}
train = {max_steps = 1}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="run or checkpoint folder")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    command = [sys.executable, "-m", "glassformer"]
    cases = {
        "import glassformer": [sys.executable, "-c", "import glassformer"],
        "import torch": [sys.executable, "-c", "import torch"],
        "glassformer --help": [*command, "--help"],
        "load and translate one sentence": [*command, "translate", options.run],
    }
    with tempfile.TemporaryDirectory() as folder:
        cases["train one step and save"] = training(Path(folder), command)
        runs = [measured(cases, options.repeats) for _ in range(options.runs)]
    report = {"machine": describe(), "seconds": runs}
    options.results.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def training(folder: Path, command: list[str]) -> list[str]:
    """Train a tiny model for one step, in the place of the run before."""
    for language in ("en", "de"):
        (folder / f"train.{language}").write_text("".join(f"{i} {i % 7} {i % 11}\n" for i in range(100)))
    (folder / "run.toml").write_text(CONFIG)
    in_its_folder = ["sh", "-c", 'cd "$1" && rm -rf run && shift && exec "$@"', "sh", str(folder)]
    return [*in_its_folder, *command, "train", "run.toml", "--run", "run"]


def measured(cases: dict[str, list[str]], repeats: int) -> dict[str, list[float]]:
    """Seconds of all processes of each case; prints the median and the range."""
    results = {name: seconds(case, repeats) for name, case in cases.items()}
    for name, values in results.items():
        print(f"{name:32} {statistics.median(values):.2f} s ({min(values):.2f} to {max(values):.2f})")
    return results


def seconds(command: list[str], repeats: int) -> list[float]:
    """Of each process but the first, which fills the file cache and compiles Python's modules, as after installing."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    found = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        subprocess.run(command, input=b"A dog runs.\n", stdout=subprocess.DEVNULL, check=True, env=environment)
        found.append(round(time.perf_counter() - began, 3))
    return found[1:]


if __name__ == "__main__":
    main()
