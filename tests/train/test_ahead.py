"""A GPU is given all of a step before it is waited for, and the next batch is made meanwhile."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.data import Batch
from glassformer.train import RunConfig
from glassformer.train.build import build
from tiny_run import TinyRun
from tiny_tasks import STEPS, made

Others = Callable[[str], RunConfig]


@pytest.fixture
def others(tmp_path_factory: pytest.TempPathFactory) -> Others:
    return lambda task: made(tmp_path_factory, task).config()


def asks_for_no_number(config: RunConfig) -> None:
    """Tensors of the device "meta" have shapes and no numbers: asking for one raises."""
    state = build(config)
    batch = state.batches.next().to("meta")
    loss = state.task.loss(state.working.to("meta").train(), batch)
    minimised = loss.smoothed if loss.guidance is None else loss.smoothed + loss.guidance
    minimised.backward()
    assert all(p.grad is not None for p in state.working.parameters() if p.requires_grad)
    with pytest.raises(RuntimeError):
        minimised.item()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
@pytest.mark.parametrize("row_tokens", [0, 64])
def test_translating_asks_for_no_number(tiny: TinyRun, row_tokens: int, positions: str, precision: str) -> None:
    model = {"model.positions": positions, "model.dropout": 0.1}
    train = {"train.label_smoothing": 0.1, "train.precision": precision}
    asks_for_no_number(tiny.config({**model, **train, "data.row_tokens": row_tokens}))


@pytest.mark.parametrize("task", STEPS)
def test_no_other_task_asks_for_one(others: Others, task: str) -> None:
    asks_for_no_number(others(task))


def test_a_batch_made_ahead_is_told_as_not_yet_made(tiny: TinyRun) -> None:
    """Wherever an epoch ends, with or without one made ahead: the same batches from the same places."""
    plain, ahead, other = (build(tiny.config()).batches for _ in range(3))
    for step in range(2 * len(plain) + 2):
        if step % 3:
            ahead.prepare()
            ahead.prepare()
        assert (ahead.state(), ahead.epoch) == (plain.state(), plain.epoch)
        other.restore(ahead.state())
        wanted = plain.next()
        assert same(ahead.next(), wanted) and same(other.next(), wanted)
        assert ahead.epoch == plain.epoch
        if step == 4:
            ahead.prepare()
            ahead.restore(plain.state())
    assert plain.epoch > 1


def same(one: Batch, other: Batch) -> bool:
    pairs: list[tuple[Any, Any]] = [(getattr(one, name), getattr(other, name)) for name in ("source", "wanted")]
    tensors: list[tuple[Tensor, Tensor]] = [pair for pair in pairs if isinstance(pair[0], Tensor)]
    return len(tensors) == 2 and all(torch.equal(a, b) for a, b in tensors)
