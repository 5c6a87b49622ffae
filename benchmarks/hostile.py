"""Time and memory that it takes to refuse each hostile checkpoint of ``tests/hostile``.

    python benchmarks/hostile.py

Each is loaded in a process of its own, forked from one in which everything is imported and a good checkpoint has been
used, so that what is measured is what the bundle costs. The largest of both are printed, and every bundle that takes
more than a second, or more than 200 MB, or is not refused.
"""

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


def measured(folder: Path) -> dict[str, float | str]:
    """How it ended, seconds, and megabytes of resident memory beyond those before it."""
    reader, writer = os.pipe()
    if not os.fork():
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        before, began = peak_megabytes(), time.perf_counter()
        end = attempt(folder)
        seconds = time.perf_counter() - began
        found = {"end": end["end"], "seconds": seconds, "megabytes": peak_megabytes() - before}
        os.write(writer, json.dumps(found).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    _, status = os.wait()
    return json.loads(data) if data else {"end": f"ended with {status}", "seconds": 0.0, "megabytes": 0.0}


def peak_megabytes() -> float:
    """Largest resident memory of this process since its peak was last cleared."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    found = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "bundle"
        pristine(folder)
        good = attempt(folder)
        assert good["end"] == "used", good
        shutil.rmtree(folder)
        for bundle in bundles():
            bundle.write(folder)
            found.append({"name": bundle.name, **measured(folder)})
            shutil.rmtree(folder)
    within = [one for one in found if one["seconds"] < SECONDS and one["megabytes"] < MEGABYTES]
    refused = [one for one in found if one["end"] == "refused"]
    print(f"{len(refused)} of {len(found)} refused, {len(within)} within {SECONDS:.0f} s and {MEGABYTES} MB")
    for key in ("seconds", "megabytes"):
        most = max(found, key=lambda one: one[key])
        print(f"most {key}: {most[key]:.2f}, {most['name'][:80]}")
    for one in found:
        if one not in within or one not in refused:
            print(f"{one['end']}, {one['seconds']:.2f} s, {one['megabytes']:.0f} MB: {one['name'][:80]}")


if __name__ == "__main__":
    main()
