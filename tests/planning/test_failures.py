"""Failures: Daly's interval is the best one, and the expected time is that of simulated failures."""

import math
import random

import pytest

from glassformer.planning.failures import Failures, best_interval, overhead

HOUR = 3600.0


def expected_share(interval: float, checkpoint: float, restart: float, mean: float) -> float:
    return mean * math.exp(restart / mean) * math.expm1((interval + checkpoint) / mean) / interval - 1


@pytest.mark.parametrize(("checkpoint", "mean"), [(10, 100 * HOUR), (60, 10 * HOUR), (300, 2 * HOUR)])
def test_no_other_interval_costs_less(checkpoint: float, mean: float) -> None:
    best = best_interval(checkpoint, mean)
    shares = [expected_share(factor * best, checkpoint, 0, mean) for factor in (0.8, 0.95, 1, 1.05, 1.25)]
    assert shares[2] <= min(shares) * 1.001
    assert best == pytest.approx(math.sqrt(2 * checkpoint * mean), rel=0.2)  # Young's first order


def test_the_overhead_is_that_of_simulated_failures() -> None:
    failures = Failures(mtbf_hours=1000, checkpoint_seconds=120, restart_seconds=300)
    found = overhead(failures, devices=500, checkpoint_bytes=0)
    draw, mean, work, elapsed = random.Random(1), 2 * HOUR, 4000, 0.0
    for _ in range(work):
        segment = found.interval + 120
        while (failed := draw.expovariate(1 / mean)) < segment:
            elapsed += failed
            while (again := draw.expovariate(1 / mean)) < 300:
                elapsed += again
            elapsed += 300
        elapsed += segment
    assert elapsed / (work * found.interval) - 1 == pytest.approx(found.share, rel=0.05)


def test_more_devices_fail_more_often() -> None:
    shares = [overhead(Failures(), devices, 1e11).share for devices in (1, 64, 4096)]
    assert shares == sorted(shares) and shares[0] < 0.01


def test_a_checkpoint_longer_than_the_mean_time_between_failures_has_an_interval() -> None:
    assert best_interval(1000, 100) == 100
