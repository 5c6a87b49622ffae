"""What every contender in decoding shares. Standard library and numpy only."""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from memory import own_peak_mib


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", required=True, type=Path)
    parser.add_argument("--input", required=True, type=Path, help="JSON: texts, their ids with the end, references")
    parser.add_argument("--beam-size", type=int, required=True)
    parser.add_argument("--precision", required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, default=0, help="source tokens of a batch; 0: each one's own way")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--alone", type=int, default=100, help="sentences that are also translated one at a time")
    return parser.parse_args()


def model_of(checkpoint: Path) -> dict[str, Any]:
    return json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))["model"]


def measure(
    options: argparse.Namespace,
    sentences: Sequence[Any],
    together: Callable[..., list[Any]],
    alone: Callable[..., Any],
    peak: Callable[[], float | None],
) -> None:
    """``together`` translates a list, ``alone`` one; prints speeds, peak memory and the translations as JSON."""
    together(sentences[:50])
    seconds = []
    for _ in range(options.repeats):
        began = time.perf_counter()
        found = together(sentences)
        seconds.append(time.perf_counter() - began)
    memory = {"peak_mib": peak(), "own_mib": own_peak_mib() if options.device == "cpu" else None}
    waits = []
    for one in sentences[: options.alone]:
        began = time.perf_counter()
        alone(one)
        waits.append(time.perf_counter() - began)
    speeds, waits = [len(sentences) / one for one in seconds], sorted(waits)
    alone_ms = {"alone_ms": waits[len(waits) // 2] * 1e3, "alone_p99_ms": waits[len(waits) * 99 // 100] * 1e3}
    print(json.dumps({"per_second": speeds, **alone_ms, **memory, "found": found}))
