"""The next batch made while a GPU still works on the one before."""

from concurrent.futures import Future
from typing import Any

from glassformer.train.task import BatchSource


class Ahead:
    """``source``, whose next batch may be made early; ``epoch`` and ``state`` are as if it were not."""

    def __init__(self, source: BatchSource):
        self._source = source
        self._made: list[Future[Any]] = []
        self._before: tuple[int, dict[str, Any]] = 0, {}

    def prepare(self) -> None:
        """Make the next batch, unless it is there; what keeps it from being made is raised when it is asked for."""
        if self._made:
            return
        self._before = self._source.epoch, self._source.state()
        made: Future[Any] = Future()
        try:
            made.set_result(self._source.next())
        except Exception as fault:
            made.set_exception(fault)
        self._made.append(made)

    def next(self) -> Any:
        self.prepare()
        return self._made.pop().result()

    def state(self) -> dict[str, Any]:
        return self._before[1] if self._made else self._source.state()

    def restore(self, state: dict[str, Any]) -> None:
        self._made.clear()
        self._source.restore(state)

    @property
    def epoch(self) -> int:
        return self._before[0] if self._made else self._source.epoch

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
