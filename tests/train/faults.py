"""Faults of one process of a training, which the others have to notice."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch

import glassformer.train.loop
import glassformer.train.replicas
from glassformer.data.loader import ResumableLoader
from glassformer.train.state import TrainState


@contextmanager
def of(name: str) -> Iterator[None]:
    """In this block the process has the fault ``name``; "" is none."""
    with ExitStack() as stack:
        if name:
            stack.enter_context(FAULTS[name]())
        yield


def third_batch(change: Callable[[Any], Any]) -> Any:
    """Return a fault: the third batch is changed."""

    def fault() -> Any:
        original = ResumableLoader.next

        def next_batch(loader: Any) -> Any:
            batch = original(loader)
            return change(batch) if loader.position == 3 else batch

        return mock.patch.object(ResumableLoader, "next", next_batch)

    return fault


def other_label(batch: Any) -> Any:
    labels = batch.labels.clone()
    labels[-1, 0] += 1
    return replace(batch, labels=labels)


def fewer_rows(batch: Any) -> Any:
    return batch.select(range(batch.n_rows - 1))


def changed_state(optimizer: bool) -> Any:
    """Return a fault: after the second step the lowest bit of one weight, or of its first moment, is another."""

    def fault() -> Any:
        original = glassformer.train.loop.train_step

        def step(state: Any, *arguments: Any) -> Any:
            result = original(state, *arguments)
            if state.counters.step == 2:
                parameters = [weight for weight in state.model.parameters() if weight.dim() > 1]
                tensor = state.optimizer.state[parameters[1]]["exp_avg"] if optimizer else parameters[1].data
                tensor.view(torch.int32)[0, 0] ^= 1
            return result

        return mock.patch.object(glassformer.train.loop, "train_step", step)

    return fault


def stop_signal() -> Any:
    """The process is asked to stop in its second step."""
    original = glassformer.train.loop.train_step

    def step(state: Any, run: Any, should_stop: Any) -> Any:
        return original(state, run, lambda: state.counters.step >= 2)

    return mock.patch.object(glassformer.train.loop, "train_step", step)


def not_finite() -> Any:
    """The loss of the process is not a number in its third step."""
    original = TrainState.loss

    def loss(state: Any, batch: Any) -> Any:
        result = original(state, batch)
        return result.scaled(float("nan")) if state.counters.step == 3 else result

    return mock.patch.object(TrainState, "loss", loss)


@contextmanager
def more_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    try:
        yield
    finally:
        torch.set_num_threads(1)


FAULTS: dict[str, Any] = {
    "other_batch": third_batch(other_label),
    "fewer_rows": third_batch(fewer_rows),
    "stop_signal": stop_signal,
    "not_finite": not_finite,
    "changed_weight": changed_state(optimizer=False),
    "changed_moment": changed_state(optimizer=True),
    "other_version": lambda: mock.patch.object(glassformer, "__version__", "0.0.1"),
    "other_python": lambda: mock.patch("platform.python_version_tuple", return_value=("3", "1", "4")),
    "more_threads": more_threads,
    "other_instructions": lambda: mock.patch("torch.backends.cpu.get_cpu_capability", return_value="DEFAULT"),
    "other_kernels": lambda: mock.patch.object(glassformer.train.replicas, "kernels", return_value=None),
}
