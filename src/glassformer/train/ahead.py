"""Batches made ahead of time, while a GPU computes the step before."""

from concurrent.futures import Future
from typing import Any

from glassformer.data.shards.shard_set import CorruptShard
from glassformer.train.task import BatchSource


class Ahead:
    """Batch source that prefetches one batch while a GPU computes; ``epoch`` and ``state`` do not count it."""

    def __init__(self, source: BatchSource):
        self._source = source
        self._prefetched: list[Future[Any]] = []
        self._before: tuple[int, dict[str, Any]] = 0, {}

    def prepare(self) -> None:
        """Make the next batch if there is none. ``next`` raises the exception of a failed attempt."""
        if self._prefetched:
            return
        self._before = self._source.epoch, self._source.state()
        batch: Future[Any] = Future()
        try:
            batch.set_result(self._source.next())
        except Exception as fault:
            batch.set_exception(fault)
        self._prefetched.append(batch)

    def next(self) -> Any:
        self.prepare()
        return self._prefetched.pop().result()

    def state(self) -> dict[str, Any]:
        return self._before[1] if self._prefetched else self._source.state()

    def restore(self, state: dict[str, Any]) -> None:
        self._prefetched.clear()
        self._source.restore(state)

    def new_corrupt(self) -> list[CorruptShard]:
        return self._source.new_corrupt()

    @property
    def epoch(self) -> int:
        return self._before[0] if self._prefetched else self._source.epoch

    @property
    def fingerprint(self) -> str:
        return self._source.fingerprint

    @property
    def content_digest(self) -> str:
        return self._source.content_digest

    @property
    def padding_share(self) -> float:
        return self._source.padding_share

    def __len__(self) -> int:
        return len(self._source)

    def largest(self) -> Any:
        return self._source.largest()
