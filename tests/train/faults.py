"""Faults of one process of a training, which the others have to notice."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from glassformer.data.loader import ResumableLoader


@contextmanager
def of(name: str) -> Iterator[None]:
    """In this block the process has the fault ``name``; "" is none."""
    with ExitStack() as stack:
        if name:
            stack.enter_context(FAULTS[name]())
        yield


def other_batch() -> Any:
    """The third batch has one other label."""
    original = ResumableLoader.next

    def next_batch(loader: Any) -> Any:
        batch = original(loader)
        if loader.position != 3:
            return batch
        labels = batch.labels.clone()
        labels[-1, 0] += 1
        return replace(batch, labels=labels)

    return mock.patch.object(ResumableLoader, "next", next_batch)


FAULTS = {"other_batch": other_batch}
