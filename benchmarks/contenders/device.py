"""What contenders that use PyTorch do otherwise on a GPU: wait for it, and tell its memory."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from memory import peak_mib
from timing import measure


def peak_on(device: str) -> Callable[[], float]:
    return peak_mib if device == "cpu" else lambda: torch.cuda.max_memory_allocated() / 2**20


def measure_on(device: str, step: Callable[[Any], tuple[int, int]], batches: Iterator[Any], seconds: float) -> None:
    """As ``timing.measure``."""
    finish = (lambda: None) if device == "cpu" else torch.cuda.synchronize
    measure(step, batches, seconds, finish, peak_on(device))
