"""Failures of a long training: the best interval between checkpoints, and the time lost (Young 1974, Daly 2006).

With a mean time M between failures of the whole job, a checkpoint of δ seconds and a restart of R seconds, training of
T seconds with a checkpoint every τ seconds is expected to take M · e^(R/M) · (e^((τ+δ)/M) − 1) · T/τ (Daly 2006,
https://doi.org/10.1016/j.future.2004.11.016, equation 20).
"""

import math
from dataclasses import dataclass

MTBF_HOURS = 50_000.0
"""Mean time between failures of one device: 419 unexpected interruptions of 16,384 H100 in 54 days.

Llama 3 (Dubey et al. 2024, arXiv:2407.21783, section 3.3.4).
"""
RESTART_SECONDS = 300.0
"""Time from a failure until the job computes again."""
STORAGE_BANDWIDTH = 1e9
"""Bytes a second to storage, from all devices together, while a checkpoint is written."""


@dataclass(frozen=True)
class Failures:
    """Assumptions about failures."""

    mtbf_hours: float = MTBF_HOURS
    """Mean time between failures of one device."""
    checkpoint_seconds: float = 0.0
    """Time to write a checkpoint; 0 is its size at ``STORAGE_BANDWIDTH``."""
    restart_seconds: float = RESTART_SECONDS


@dataclass(frozen=True)
class Overhead:
    """Seconds between checkpoints, and the share of time that checkpoints and failures add."""

    interval: float
    share: float


def overhead(failures: Failures, devices: int, checkpoint_bytes: float) -> Overhead:
    """Daly's optimal interval for a job of ``devices`` devices, and the overhead with it."""
    mean = failures.mtbf_hours * 3600 / devices
    checkpoint = failures.checkpoint_seconds or checkpoint_bytes / STORAGE_BANDWIDTH
    interval = best_interval(checkpoint, mean)
    factor = math.exp(min(failures.restart_seconds / mean, 700.0)) * math.expm1(
        min((interval + checkpoint) / mean, 700.0)
    )
    return Overhead(interval, mean * factor / interval - 1)


def best_interval(checkpoint: float, mean: float) -> float:
    """Seconds of training between checkpoints: Young's √(2δM) with Daly's corrections (equation 37)."""
    if checkpoint >= 2 * mean:
        return mean
    ratio = checkpoint / (2 * mean)
    return math.sqrt(2 * checkpoint * mean) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - checkpoint
