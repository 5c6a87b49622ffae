"""A GPU is given all of a step before it is waited for, and the next batch is made meanwhile."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.data import Batch
from glassformer.storage.run_folder import RunFolder
from glassformer.train import RunConfig
from glassformer.train.build import build
from glassformer.train.step import train_step
from processor import PRECISIONS
from tiny_run import TinyRun
from tiny_tasks import EXAMPLES, made

Others = Callable[[str], RunConfig]


@pytest.fixture
def others(tmp_path_factory: pytest.TempPathFactory) -> Others:
    return lambda task: made(tmp_path_factory, task).config()


def asks_for_no_number(config: RunConfig) -> None:
    """Tensors of the device "meta" have shapes and no numbers: asking for one raises."""
    state = build(config)
    batch = state.batches.next().to("meta")
    loss = state.task.loss(state.compute_model.to("meta").train(), batch)
    minimized = loss.loss if loss.guidance is None else loss.loss + loss.guidance
    minimized.backward()
    assert all(p.grad is not None for p in state.compute_model.parameters() if p.requires_grad)
    with pytest.raises(RuntimeError):
        minimized.item()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
@pytest.mark.parametrize("row_tokens", [0, 64])
def test_translating_asks_for_no_number(tiny: TinyRun, row_tokens: int, positions: str, precision: str) -> None:
    model = {"model.positions": positions, "model.dropout": 0.1}
    train = {"train.label_smoothing": 0.1, "train.precision": precision}
    asks_for_no_number(tiny.config({**model, **train, "data.row_tokens": row_tokens}))


@pytest.mark.parametrize("task", EXAMPLES)
def test_no_other_task_asks_for_one(others: Others, task: str) -> None:
    asks_for_no_number(others(task))


def test_prefetched_batch_is_not_counted_in_the_state(tiny: TinyRun) -> None:
    """Wherever an epoch ends, with or without one made ahead: the same batches from the same places."""
    plain, ahead, other = (build(tiny.config()).batches for _ in range(3))
    for step in range(2 * len(plain) + 2):
        if step % 3:
            ahead.prepare()
            ahead.prepare()
        assert (ahead.state(), ahead.epoch) == (plain.state(), plain.epoch)
        other.restore(ahead.state())
        expected = plain.next()
        assert same(ahead.next(), expected)
        assert same(other.next(), expected)
        assert ahead.epoch == plain.epoch
        if step == 4:
            ahead.prepare()
            ahead.restore(plain.state())
    assert plain.epoch > 1


def test_prefetch_error_is_raised_by_next(tiny: TinyRun) -> None:
    batches = build(tiny.config()).batches
    before = batches.state()
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(type(batches._source), "next", fails)
        batches.prepare()
        assert batches.state() == before
        with pytest.raises(MemoryError, match="of the data"):
            batches.next()


def fails(_: object) -> None:
    raise MemoryError("of the data")


def test_step_prefetches_before_it_synchronizes(tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In what PyTorch does of a step, which is all of it on a GPU."""
    run, told = RunFolder.create(tmp_path), []
    state = build(tiny.config({"optimizer.clip_norm": 1.0, "train.engine": "torch"}))
    train_step(state, run)
    prepare, item = state.batches.prepare, Tensor.item
    monkeypatch.setattr(state.batches, "prepare", lambda: (told.append("prepare"), prepare()))
    monkeypatch.setattr(Tensor, "item", lambda x: (told.append("item"), item(x))[1])
    train_step(state, run)
    assert told == ["prepare", "prepare", "item", "item", "item"]  # first of this step's own, which is there


def same(one: Batch, other: Batch) -> bool:
    pairs: list[tuple[Any, Any]] = [(getattr(one, name), getattr(other, name)) for name in ("source", "labels")]
    tensors: list[tuple[Tensor, Tensor]] = [pair for pair in pairs if isinstance(pair[0], Tensor)]
    return len(tensors) == 2 and all(torch.equal(a, b) for a, b in tensors)
