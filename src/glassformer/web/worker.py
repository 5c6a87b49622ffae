"""The thread that computes: inference never runs on the event loop."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")


class ClientGoneError(Exception):
    """The client closed its connection before its answer was computed."""


class Worker:
    """A daemon thread that runs one job after the other, so that the process can end at any time.

    One thread bounds memory, and PyTorch uses the cores. A job whose client has gone is never started.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._waiting: set[Future[Any]] = set()
        self.thread = threading.Thread(target=self._run, name="glassformer-worker", daemon=True)
        self.thread.start()

    @property
    def has_waiting_jobs(self) -> bool:
        """True if a job waits for the one that runs, which may give way; jobs of the background do not count."""
        return bool(self._waiting)

    def submit(self, job: Callable[[], Result], background: bool = False) -> "Future[Result]":
        """Queue ``job``; cancelling the future before it starts drops it. In the background nobody waits for it."""
        future: Future[Result] = Future()
        if not background:
            self._waiting.add(future)
        self._jobs.put((future, job))
        return future

    async def run(self, job: Callable[[], Result], disconnected: Callable[[], Awaitable[bool]]) -> Result:
        """The result of ``job``; ``ClientGoneError`` once ``disconnected`` is true, when a queued job is dropped."""
        future = asyncio.wrap_future(self.submit(job))
        while True:
            done, _ = await asyncio.wait({future}, timeout=0.25)
            if done:
                return future.result()
            if await disconnected():
                future.cancel()
                raise ClientGoneError

    def _run(self) -> None:
        while True:
            future, job = self._jobs.get()
            self._waiting.discard(future)
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(job())
                except BaseException as error:  # the caller raises it
                    future.set_exception(error)
            del future, job
