"""Measurement of steps with a simulated clock: what disturbs some of them does not change the estimate."""

from types import SimpleNamespace
from typing import Any

import pytest
from small_trainings import small_training

from glassformer.native.library import kernels as kernels_of_this_machine
from glassformer.planning import measure

FIXED, BY_ROW = 0.01, 0.002
"""Seconds of a step: of its weights, and of each row."""


class Clock:
    """A clock that steps and updates advance; every seventh call is disturbed."""

    def __init__(self, slowness: float):
        self.now, self.slowness, self.calls = 0.0, slowness, 0
        self.rows: set[int] = set()

    def pass_(self, seconds: float) -> None:
        self.calls += 1
        self.now += seconds * self.slowness * (7 if self.calls % 7 == 0 else 1)

    def step(self, state: Any) -> None:
        rows = len(state.batches.next().tokens)
        self.rows.add(rows)
        self.pass_(FIXED + BY_ROW * rows)


@pytest.fixture(params=[1.0, 100.0])
def clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A quick machine, and one on which a step of half the rows takes over a second."""
    clock = Clock(request.param)
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    monkeypatch.setattr(measure, "step", clock.step)
    update = SimpleNamespace(apply=lambda: clock.pass_(FIXED / 2))
    monkeypatch.setattr(measure, "weight_update", lambda state: update)
    return clock


def test_disturbed_steps_do_not_change_the_estimate_of_all_rows(clock: Clock) -> None:
    training = small_training("bert", data={"batch_tokens": 1024})
    rows = training.shape.rows
    found = measure.measure_step(training)
    expected = clock.slowness * (FIXED + BY_ROW * rows)
    assert found.profile.at(rows).seconds + found.update_seconds == pytest.approx(expected)
    assert found.update_seconds == pytest.approx(clock.slowness * FIXED / 2)
    assert found.profile.points[-1].rows == rows // (2 if clock.slowness == 1.0 else 4)
    assert min(clock.rows) == rows // 8


@pytest.mark.parametrize("name", ["encoder_decoder", "gpt"])
def test_memory_of_a_step_in_the_kernels_counts_sparse_gradients(name: str) -> None:
    """Embeddings in the kernels give the gradients of the rows that they read; d_model=32 is PyTorch's."""
    wide = {"d_model": 64, "d_ff": 128}
    engines = ("auto", "torch")
    kernels, pytorch = (
        small_training(name, model=wide, train={"engine": engine, "precision": "float32"}) for engine in engines
    )
    state = measure.training_state(kernels, 4)
    if kernels_of_this_machine() is None:
        pytest.skip("there are no kernels here")
    assert any(one.engine == "native" and "embedding" in one.part for one in state.routes)
    found, expected = (measure.record_real_step(each) for each in (state, measure.training_state(pytorch, 4)))
    assert 0 < found.activations < 2 * expected.activations


def test_short_calls_are_measured_together_and_each_call_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, made = Clock(1.0), [0, 0]
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: clock.now))

    def call(index: int, seconds: float) -> None:
        made[index] += 1
        clock.now += seconds

    found = measure.median_seconds([lambda: call(0, 1e-5), lambda: call(1, 3e-5)])
    assert found == [pytest.approx(1e-5), pytest.approx(3e-5)]
    assert made[0] == made[1] > 1000
