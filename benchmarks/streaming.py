"""Streaming of token shards: samples per second, memory, and the time to resume, beside other libraries.

    python -m benchmarks.streaming --gigabytes 10 --samples 3000000 --folder /tmp/streaming
    python -m benchmarks.streaming --gigabytes 0.5 --samples 1000000 --peers /path/to/venv/bin/python

Synthetic token ids of samples of 16 to 112 tokens (64 on average) are written without tokenizing. Each contender has a
process of its own: it streams ``--samples`` samples in shuffled order as arrays of token ids, stores its state, and
reads on; another process resumes from the state, and the next 20,000 samples are compared. ``batches`` are those of
training, as tensors. ``--peers`` names a Python that has mosaicml-streaming and datasets; without it only glassformer
is measured. Everything that was written is deleted.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine

ROOT = Path(__file__).parents[1]
SHORTEST, LONGEST, WORDS = 16, 112, 30_000
PEERS = {"mosaicml-streaming": "mosaic_streaming", "datasets": "huggingface_streaming"}


def write_source(folder: Path, gigabytes: float) -> int:
    """Token ids and lengths of the samples; the number of samples."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    block = generator.integers(8, WORDS, 1 << 22, np.uint16)
    total = int(gigabytes * 1e9) // 2
    lengths = generator.integers(SHORTEST, LONGEST + 1, total * 2 // (SHORTEST + LONGEST)).astype("<i4")
    lengths.tofile(folder / "lengths.i4")
    with (folder / "tokens.u2").open("wb") as file:
        left = int(lengths.sum(dtype=np.int64))
        while left:
            part = np.roll(block, int(generator.integers(1 << 22)))[:left]
            file.write(part.tobytes())
            left -= len(part)
    return len(lengths)


def contender(python: str, name: str, *arguments: object) -> dict[str, Any]:
    """The report of a contender, from a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment["PYTHONPATH"] = f"{ROOT}:{ROOT / 'src'}"
    place = ["-m", f"benchmarks.contenders.{name}"]
    if name in PEERS.values():
        place = [str(ROOT / "benchmarks" / "contenders" / f"{name}.py")]
    done = subprocess.run(
        [python, *place, *map(str, arguments)], capture_output=True, text=True, env=environment, cwd=ROOT
    )
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else str(done.returncode)}
    report: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return report


def measured(python: str, name: str, source: Path, folder: Path, count: int, last: bool) -> dict[str, Any]:
    written = contender(python, name, "write", source, folder)
    if last:  # the page cache is for the samples
        shutil.rmtree(source)
    streamed = written if "error" in written else contender(python, name, "stream", folder, count)
    if "error" in streamed:
        return streamed
    resumed = contender(python, name, "resume", folder)
    return {
        "samples_per_second": round(streamed["samples"] / streamed["seconds"]),
        "tokens_per_second": round(streamed["tokens"] / streamed["seconds"]),
        "peak_mib": round(streamed["peak_mib"], 1),
        "peak_mib_before_opening": round(streamed["before_mib"], 1),
        "seconds_to_first": round(streamed["first"], 2),
        "seconds_to_resume": round(resumed["seconds"], 2) if "seconds" in resumed else None,
        "exact": resumed.get("digest") == streamed["digest"],
        "seconds_to_write": round(written["seconds"], 1),
        **({"resume_error": resumed["error"]} if "error" in resumed else {}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--samples", type=int, default=3_000_000, help="samples to stream")
    parser.add_argument("--batches", type=int, default=500_000, help="samples to stream as batches of each task")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/glassformer-streaming"))
    parser.add_argument("--peers", help="Python with mosaicml-streaming and datasets")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    report: dict[str, Any] = {"machine": machine.describe(), "gigabytes": arguments.gigabytes}
    try:
        report["samples"] = write_source(folder / "source", arguments.gigabytes)
        report["streamed"] = arguments.samples
        ours, count = sys.executable, arguments.samples
        source, shards, pairs = folder / "source", folder / "glassformer", folder / "pairs"
        contender(ours, "shards_streaming", "pairs", source, pairs)
        report["glassformer"] = measured(ours, "shards_streaming", source, shards, count, not arguments.peers)
        report["batches"] = {
            task: contender(ours, "shards_streaming", "batches", place, task, arguments.batches)
            for task, place in (("translation", pairs), ("masked", shards), ("language", shards))
        }
        for name, module in (PEERS if arguments.peers else {}).items():
            report[name] = measured(arguments.peers, module, source, folder / module, count, last=False)
            shutil.rmtree(folder / module, ignore_errors=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
