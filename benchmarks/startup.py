"""How long it takes until something happens: processes started cold, several times.

python -m benchmarks.startup RUN
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.machine import describe

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="run or checkpoint folder")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    command = [sys.executable, "-m", "glassformer"]
    cases = {
        "import glassformer": [sys.executable, "-c", "import glassformer"],
        "import torch": [sys.executable, "-c", "import torch"],
        "glassformer --help": [*command, "--help"],
        "load and translate one sentence": [*command, "translate", options.run],
    }
    runs = []
    for _ in range(options.runs):
        results = {name: seconds(case, options.repeats) for name, case in cases.items()}
        for name, values in results.items():
            print(f"{name:32} {statistics.median(values):.2f} s ({min(values):.2f} to {max(values):.2f})")
        runs.append(results)
    report = {"machine": describe(), "seconds": runs}
    (HERE / "results" / "startup.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


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
