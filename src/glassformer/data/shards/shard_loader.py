"""Endless batches from shards, window by window, which can be resumed at any batch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from glassformer.data.loader import Draw
from glassformer.data.sampling import Batching, Indices, Sampler
from glassformer.data.shards.epoch import EpochOrder
from glassformer.data.shards.shard_set import CorruptShard, ShardSet
from glassformer.errors import DataError

B = TypeVar("B")

WINDOW_SEED = 0x77696E  # keeps the random numbers of windows apart from those of batches


@dataclass(frozen=True)
class SampleWindow(Generic[B]):
    """Samples of a window in memory. ``sampler`` and ``collate`` number them from 0; ``examples`` are their numbers."""

    examples: Indices
    sampler: Sampler[Any]
    collate: Callable[[Any, Draw], B]
    size: Callable[[Any], int]
    """Number of samples in a batch of the sampler."""


@dataclass(frozen=True)
class _Planned(Generic[B]):
    """Batches of a window; ``ends[i]`` is the position in the epoch behind batch i."""

    number: int
    window: SampleWindow[B]
    plan: Batching[Any]
    ends: list[int]


class ShardLoader(Generic[B]):
    """Batches of every epoch; each is a function of (seed, epoch, window) alone.

    ``order`` is that of an epoch, and ``read`` brings samples into memory. ``epoch`` and ``position`` are those of the
    next batch, ``position`` as the number of samples before it. The number of batches and the share of padding are
    estimated by the present window, since the lengths of the samples in other windows are not known.
    """

    def __init__(
        self,
        shards: ShardSet,
        order: Callable[[int], EpochOrder],
        read: Callable[[Indices], SampleWindow[B]],
        seed: int,
        fingerprint: str,
    ) -> None:
        if seed < 0:
            raise DataError(f"seed={seed} is negative; give 0 or more")
        self.shards, self.seed, self.fingerprint = shards, seed, fingerprint
        self.content_digest = shards.index.content_digest
        self.epoch, self.position = 0, 0
        self._order_of, self._read = order, read
        self._order = order(0)
        self._planned: _Planned[B] | None = None
        self._reported = 0

    def __len__(self) -> int:
        """Batches in this epoch."""
        return max(1, round(len(self._current().plan) * self._order.n_windows))

    def next(self) -> B:
        planned = self._current()
        number = int(np.searchsorted(planned.ends, self.position, side="right"))
        batch = self._make(planned, number)
        self._enter(self.epoch, planned.ends[number])
        return batch

    def __iter__(self) -> Iterator[B]:
        """Batches without end."""
        while True:
            yield self.next()

    def largest(self) -> B:
        """The batch of this window that needs most memory."""
        planned = self._current()
        return self._make(planned, planned.plan.largest)

    @property
    def padding_share(self) -> float:
        """Share of padding in the tokens of this window's batches."""
        return self._current().plan.padding_share

    def state(self) -> dict[str, int]:
        """Position of the loader, for ``restore`` on the same shards, settings and seed."""
        return {"epoch": self.epoch, "position": self.position}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with the batch that followed when ``state`` was taken."""
        epoch, position = state["epoch"], state["position"]
        size = len(self._order_of(max(0, epoch)))
        if epoch < 0 or not 0 <= position < size:
            raise DataError(
                f"cannot continue at sample {position:,} of epoch {epoch}, which has {size:,}; "
                "use the shards, data.bucket_window and seed of the stored state"
            )
        self._enter(epoch, position)

    def new_corrupt(self) -> list[CorruptShard]:
        """Shards that were found to be corrupt, and skipped, since the last call."""
        new = list(self.shards.corrupt.values())[self._reported :]
        self._reported += len(new)
        return new

    def _current(self) -> _Planned[B]:
        """The window of the next batch; windows of which every sample is skipped are passed over."""
        while True:
            number = self._order.window_of(self.position)
            if self._planned is None or self._planned.number != number:
                self._planned = self._plan(number)
            if self._planned.ends:
                return self._planned
            self._enter(self.epoch, self._order.begin(number + 1))

    def _plan(self, number: int) -> _Planned[B]:
        window = self._read(self._order.samples(number))
        begin, end = self._order.begin(number), self._order.begin(number + 1)
        generator = np.random.default_rng((self.seed, self.epoch, number, WINDOW_SEED))
        plan = window.sampler(generator)
        counts = [window.size(plan.batch(i)) for i in range(len(plan))] if len(window.examples) else []
        ends = (begin + np.cumsum(counts, dtype=np.int64)).tolist()
        if ends:
            ends[-1] = end  # samples of corrupt shards count, so that the position does not depend on them
        return _Planned(number, window, plan, ends)

    def _make(self, planned: _Planned[B], number: int) -> B:
        position = planned.ends[number]
        draw = Draw(self.seed, self.epoch, position, planned.window.examples)
        return planned.window.collate(planned.plan.batch(number), draw)

    def _enter(self, epoch: int, position: int) -> None:
        if epoch == self.epoch and position == len(self._order):
            epoch, position = epoch + 1, 0
        if epoch != self.epoch:
            self._order, self._planned = self._order_of(epoch), None
        self.epoch, self.position = epoch, position
