"""A recorded step equals the real one: its arithmetic, and the memory that is alive in it."""

from dataclasses import replace

import pytest
import torch
from small_trainings import CONFIGS, small_training
from torch.utils.flop_counter import FlopCounterMode

from glassformer.errors import ConfigError
from glassformer.models.registry import build_model
from glassformer.planning import Training
from glassformer.planning.record import CPU_FLOPS, Recorder
from glassformer.planning.step import record_step, run_step
from glassformer.tasks import TASKS


def real_step(training: Training, rows: int) -> tuple[int, int, int]:
    """FLOPs by PyTorch's counter, then activations and gradients at the peak, of a step with real tensors."""
    model = build_model(training.values, "model").train()
    batch = training.shape.make(rows, torch.device("cpu"))
    with FlopCounterMode(display=False, custom_mapping=dict(CPU_FLOPS)) as counter:
        run_step(training.task, model, model, batch)
    model.zero_grad()
    with Recorder(model) as recorder:
        run_step(training.task, model, model, batch)
    return counter.get_total_flops(), recorder.record.activations, recorder.record.peak_gradients


@pytest.mark.parametrize("name", CONFIGS)
def test_flops_equal_the_counter_and_memory_equals_the_real_step(name: str) -> None:
    training = small_training(name)
    recorded = record_step(training, 3, gpu=False)
    flops, activations, gradients = real_step(training, 3)
    assert recorded.flops == flops > 0
    if name != "recurrent":  # PyTorch does not know the size of oneDNN's workspace before it runs
        assert recorded.activations == pytest.approx(activations, rel=0.01)
    assert recorded.peak_gradients == gradients


def test_flops_of_a_known_model() -> None:
    """Six operations a weight and position, and attention; the embedding is a look-up."""
    rows, length, d_model, d_ff, vocab, layers = 3, 32, 32, 64, 300, 2
    training = small_training("gpt")
    weights = layers * (4 * d_model**2 + 2 * d_model * d_ff)
    attention = layers * 6 * 2 * rows * length**2 * d_model
    output = 6 * 128 * vocab * d_model  # 96 rows, filled up to a multiple of 64
    assert record_step(training, rows, gpu=False).flops == 6 * rows * length * weights + attention + output


def activations_of_a_layer(gpu: bool, low_precision: bool = False) -> float:
    """Bytes that one more encoder layer with d_ff = 4 · d_model stores until the backward pass."""
    some, more = (small_training("bert", model={"n_layers": layers, "d_ff": 128}) for layers in (2, 3))
    steps = (record_step(training, 4, gpu=gpu, low_precision=low_precision) for training in (more, some))
    return next(steps).activations - next(steps).activations


@pytest.mark.parametrize(("gpu", "low_precision"), [(True, True), (True, False), (False, False)])
def test_activations_of_a_layer_follow_the_formula(gpu: bool, low_precision: bool) -> None:
    """Korthikanti et al. 2022 (arXiv:2205.05198), equation 1: s·b·h (34 + 5·a·s/h) in 16 bits.

    16 values of an element and 2 bytes of dropout are their 34. Fused attention stores a number a query instead of the
    second term. On a CPU a mask of dropout is a float, and three matrices of weights are stored.
    """
    s, b, h, a = 32, 4, 32, 4
    size, mask = (2 if low_precision else 4), (1 if gpu else 4)
    attention = 4 * a * s * b if gpu else 3 * 4 * a * s * s * b
    statistics = 2 * 2 * 4 * s * b  # mean and deviation of two normalizations, in float32
    expected = s * b * h * (16 * size + 2 * mask) + attention + statistics
    assert activations_of_a_layer(gpu, low_precision) == pytest.approx(expected, rel=0.01)


def test_the_record_draws_no_random_number_and_leaves_nothing_behind() -> None:
    before = torch.get_rng_state()
    record_step(small_training("encoder_decoder"), 2, gpu=False)
    record_step(small_training("encoder_decoder"), 2, gpu=True)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.zeros(2).sum().item() == 0


def test_task_without_a_planned_batch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "language", replace(TASKS["language"], planned_batch=""))
    message = "task=language: its batches have no shape without data; known: translation, masked, "
    with pytest.raises(ConfigError, match=message):
        small_training("gpt")
