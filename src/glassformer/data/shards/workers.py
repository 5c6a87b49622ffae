"""Encoding of chunks in several processes, with results in the order of the input."""

import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from typing import Any

from glassformer.data.shards.samples import Chunk, Encoded, Samples
from glassformer.errors import DataError

CHUNKS_PER_PROCESS = 3
"""Chunks that are encoded or wait for it: enough for no process to wait, few enough for memory."""

_samples: Samples[Any] | None = None
"""The samples that this process encodes."""


class Encoders:
    """Encoders of chunks: ``processes`` of them, or the calling process alone."""

    def __init__(self, samples: Samples[Any], pool: ProcessPoolExecutor | None, processes: int) -> None:
        self.samples, self.pool, self.room = samples, pool, CHUNKS_PER_PROCESS * processes

    def encode(self, chunks: Iterator[Chunk[Any]], path: str) -> Generator[tuple[Chunk[Any], Encoded], None, None]:
        """Each chunk, without its rows, and its encoding, in order."""
        if self.pool is None:
            for chunk in chunks:
                yield chunk._replace(rows=[]), self.samples.encode(chunk, path)
            return
        waiting = deque[tuple[Chunk[Any], Future[Encoded]]]()
        try:
            for chunk in chunks:
                if len(waiting) >= self.room:
                    yield _result(waiting)
                waiting.append((chunk._replace(rows=[]), self.pool.submit(_encode, chunk, path)))
            while waiting:
                yield _result(waiting)
        finally:
            for _, future in waiting:
                future.cancel()


@contextmanager
def encoders(samples: Samples[Any], processes: int) -> Iterator[Encoders]:
    """Start the processes, which end with this one even if it is killed."""
    if processes == 1:
        yield Encoders(samples, None, 1)
        return
    context = get_context("spawn")  # a copy of this process would lack the threads of its tokenizers
    pool = ProcessPoolExecutor(processes, context, _start, (samples,))
    try:
        yield Encoders(samples, pool, processes)
    except BrokenProcessPool:
        raise DataError("a process that encodes text was killed; check the memory, or lower --processes") from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start(samples: Samples[Any]) -> None:
    global _samples
    _samples = samples
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    os.environ["RAYON_NUM_THREADS"] = "1"  # of the tokenizers: there is a process for each core
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode(chunk: Chunk[Any], path: str) -> Encoded:
    assert _samples is not None
    return _samples.encode(chunk, path)


def _result(waiting: deque[tuple[Chunk[Any], Future[Encoded]]]) -> tuple[Chunk[Any], Encoded]:
    chunk, future = waiting[0]
    encoded = future.result()
    waiting.popleft()
    return chunk, encoded
