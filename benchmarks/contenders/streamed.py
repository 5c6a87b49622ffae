"""Measurement that the contenders of ``benchmarks.streaming`` share: only NumPy and the standard library.

A contender writes its form of the samples, streams them, and resumes from a state of its own.
"""

import hashlib
import json
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

COMPARED = 20_000
"""Samples after a resume that are compared with those of the uninterrupted pass."""


class Contender(Protocol):
    def write(self, source: Path, folder: Path) -> None: ...

    def begin(self, folder: Path, state: Any = None) -> Iterator[Any]:
        """Samples as arrays of token ids, in shuffled order, from the start or from ``state``."""
        ...

    def state(self, taken: int) -> Any:
        """State after so many samples, as JSON."""
        ...


def rows_of(source: Path) -> Iterator[np.ndarray]:
    """The samples of ``source``: ``tokens.u2`` and ``lengths.i4``."""
    tokens, lengths = np.memmap(source / "tokens.u2", "<u2", "r"), np.fromfile(source / "lengths.i4", "<i4")
    begin = 0
    for length in lengths.tolist():
        yield np.asarray(tokens[begin : begin + length])
        begin += length


def peak_mebibytes() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def digest(samples: Iterator[Any]) -> str:
    """SHA-256 of the next samples."""
    found = hashlib.sha256()
    for ids in islice(samples, COMPARED):
        found.update(np.asarray(ids).astype("<i4").tobytes())
    return found.hexdigest()


def measure(contender: Contender) -> None:
    """``write SOURCE FOLDER``, ``stream FOLDER N`` or ``resume FOLDER``; print one line of JSON."""
    verb, *rest = sys.argv[1:]
    if verb == "write":
        began = time.perf_counter()
        contender.write(Path(rest[0]), Path(rest[1]))
        print(json.dumps({"seconds": time.perf_counter() - began}))
    elif verb == "stream":
        _stream(contender, Path(rest[0]), int(rest[1]))
    else:
        state = json.loads((Path(rest[0]) / "resume_state.json").read_text())
        began = time.perf_counter()
        samples = contender.begin(Path(rest[0]), state)
        first = next(samples)
        seconds = time.perf_counter() - began
        found = digest(iter([first, *islice(samples, COMPARED - 1)]))
        print(json.dumps({"seconds": seconds, "digest": found}))


def _stream(contender: Contender, folder: Path, count: int) -> None:
    before, began = peak_mebibytes(), time.perf_counter()
    samples = contender.begin(folder)
    tokens = len(next(samples))
    first = time.perf_counter() - began
    began = time.perf_counter()
    for ids in islice(samples, count - 1):
        tokens += len(ids)
    seconds = time.perf_counter() - began
    (folder / "resume_state.json").write_text(json.dumps(contender.state(count)))
    found = digest(samples)
    report = {"first": first, "seconds": seconds, "samples": count, "tokens": tokens}
    print(json.dumps({**report, "before_mib": before, "peak_mib": peak_mebibytes(), "digest": found}))
