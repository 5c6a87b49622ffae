"""The learning rate of every step: known values."""

import math
from itertools import pairwise

import pytest

from glassformer.train import OptimizerConfig
from glassformer.train.optim import SCHEDULES, learning_rate


def rate(step: int, max_steps: int = 1000, d_model: int = 512, **values: object) -> float:
    return learning_rate(OptimizerConfig.parse(values), step, d_model, max_steps)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (1, 512**-0.5 * 4000**-1.5),
        (2000, 512**-0.5 * 2000 * 4000**-1.5),
        (4000, 512**-0.5 * 4000**-0.5),
        (100_000, 512**-0.5 * 100_000**-0.5),
    ],
)
def test_noam_is_equation_3(step: int, expected: float) -> None:
    """``warmup_steps`` = 4000, as in the paper; its peak for the base model is 6.99e-4."""
    assert rate(step) == pytest.approx(expected, rel=1e-12)
    assert rate(4000) == pytest.approx(6.987712e-4, rel=1e-6)
    assert rate(step, learning_rate=2.0) == pytest.approx(2 * expected, rel=1e-12)


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_every_schedule_rises_in_a_line_to_its_peak(schedule: str) -> None:
    rates = [rate(step, schedule=schedule, warmup_steps=20) for step in range(1, 101)]
    peak = 512**-0.5 * 20**-0.5 if schedule == "noam" else 1.0
    assert max(rates) == rates[19] == pytest.approx(peak)
    assert rates[:20] == pytest.approx([peak * step / 20 for step in range(1, 21)])
    assert all(later <= earlier for earlier, later in pairwise(rates[19:]))


@pytest.mark.parametrize(
    ("schedule", "step", "expected"),
    [
        ("inverse_sqrt", 400, 0.5 * math.sqrt(100 / 400)),
        ("inverse_sqrt", 900, 0.5 / 3),
        ("cosine", 550, 0.25),
        ("cosine", 325, 0.25 * (1 + math.sqrt(0.5))),
        ("cosine", 1000, 0.0),
        ("cosine", 1500, 0.0),
        ("constant", 999, 0.5),
    ],
)
def test_after_the_peak(schedule: str, step: int, expected: float) -> None:
    """Warm-up of 100 steps to 0.5, and 1000 steps in all."""
    assert rate(step, schedule=schedule, warmup_steps=100, learning_rate=0.5) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_without_warm_up_the_first_step_is_the_highest(schedule: str) -> None:
    rates = [rate(step, schedule=schedule, warmup_steps=0) for step in (1, 2, 500)]
    assert rates[0] == max(rates)
    assert math.isfinite(rates[0])
    assert rates[0] > 0


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_a_cooldown_leads_in_a_line_to_zero(schedule: str) -> None:
    without, cooled = (
        [rate(step, schedule=schedule, warmup_steps=20, cooldown_steps=steps) for step in range(1, 1001)]
        for steps in (0, 200)
    )
    assert cooled[:800] == without[:800]
    shares = [(1000 - step) / 200 for step in range(801, 1001)]
    assert cooled[800:] == pytest.approx([rate * share for rate, share in zip(without[800:], shares, strict=True)])
