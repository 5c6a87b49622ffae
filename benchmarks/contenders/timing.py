"""What every contender in training shares: batches, sizes, clock. Standard library, numpy and torch only."""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import numpy as np
from memory import peak_mib
from sizes import SIZES

DROPOUT, SMOOTHING, RATE, BETAS, EPSILON = 0.1, 0.1, 1e-3, (0.9, 0.98), 1e-9
PAD, FIRST_WORD = 0, 3
WARM_UP = 8


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", required=True, help="npz of source_N and target_N, padded with 0")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--vocab", type=int, required=True)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, default=2048, help="padded ones of a batch, on each side")
    parser.add_argument("--seconds", type=float, default=30.0)
    return parser.parse_args()


def read(path: str) -> list[tuple[Any, Any]]:
    with np.load(path) as stored:
        return [(stored[f"source_{i}"], stored[f"target_{i}"]) for i in range(len(stored.files) // 2)]


def measure(
    step: Callable[[Any], tuple[int, int]],
    batches: Iterator[Any],
    seconds: float,
    finish: Callable[[], None] = lambda: None,
    peak: Callable[[], float] = peak_mib,
) -> None:
    """Run ``step``, which says how many source and target tokens it saw, and print what was reached as JSON.

    ``finish`` waits for what was begun; ``peak`` tells the memory that was taken.
    """
    for _ in range(WARM_UP):
        step(next(batches))
    finish()
    began, tokens, steps = time.perf_counter(), [0, 0], 0
    while time.perf_counter() - began < seconds:
        source, target = step(next(batches))
        tokens[0], tokens[1], steps = tokens[0] + source, tokens[1] + target, steps + 1
    finish()
    reached = {"source": tokens[0], "target": tokens[1], "seconds": time.perf_counter() - began, "steps": steps}
    print(json.dumps({**reached, "peak_mib": peak()}))


def forever(path: str) -> Iterator[tuple[Any, Any]]:
    return cycle(read(path))
