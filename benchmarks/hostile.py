"""Measure the time and memory needed to refuse each hostile checkpoint of ``tests/hostile``.

    python benchmarks/hostile.py

Each checkpoint is loaded in a forked process. Its parent has imported everything and used a valid checkpoint, so the
figures are the cost of the hostile checkpoint alone. Prints the largest time and memory, and every checkpoint that
takes more than a second, takes more than 200 MB, or is not refused.
"""

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS / "hostile"))

from attempt import attempt  # noqa: E402
from bundles import bundles, pristine  # noqa: E402

SECONDS, MEGABYTES = 1.0, 200


def measure(folder: Path) -> dict[str, float | str]:
    """Outcome, seconds, and growth of resident memory in megabytes."""
    reader, writer = os.pipe()
    if not os.fork():
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
        before, began = peak_megabytes(), time.perf_counter()
        outcome = attempt(folder)
        seconds = time.perf_counter() - began
        figures = {"end": outcome["end"], "seconds": seconds, "megabytes": peak_megabytes() - before}
        os.write(writer, json.dumps(figures).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    _, status = os.wait()
    return json.loads(data) if data else {"end": f"ended with {status}", "seconds": 0.0, "megabytes": 0.0}


def peak_megabytes() -> float:
    """Peak resident memory of this process since the last reset."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "bundle"
        pristine(folder)
        good = attempt(folder)
        assert good["end"] == "used", good
        shutil.rmtree(folder)
        for bundle in bundles():
            bundle.write(folder)
            results.append({"name": bundle.name, **measure(folder)})
            shutil.rmtree(folder)
    within = [row for row in results if row["seconds"] < SECONDS and row["megabytes"] < MEGABYTES]
    refused = [row for row in results if row["end"] == "refused"]
    print(f"{len(refused)} of {len(results)} refused, {len(within)} within {SECONDS:.0f} s and {MEGABYTES} MB")
    for key in ("seconds", "megabytes"):
        largest = max(results, key=lambda row: row[key])
        print(f"most {key}: {largest[key]:.2f}, {largest['name'][:80]}")
    for row in results:
        if row not in within or row not in refused:
            print(f"{row['end']}, {row['seconds']:.2f} s, {row['megabytes']:.0f} MB: {row['name'][:80]}")


if __name__ == "__main__":
    main()
