"""Loss of a process: every other one ends with an error that names it.

PyTorch reports a closed connection or a time-out, not the process behind it: the one whose connection closed may itself
have ended over the loss of a third. So a thread of each process answers a question in the store of the process group,
also while its main thread waits for the others. Whichever process does not answer is lost.
"""

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from time import monotonic, sleep

import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

from glassformer.errors import GlassformerError
from glassformer.train.distributed import World, is_lost_connection

POLL_SECONDS = 1.0
ANSWER_SECONDS = 5.0
"""Time in which a process that lives has answered."""
QUESTION, ANSWER, HOST = "glassformer/question", "glassformer/answer/", "glassformer/host/"
KNOWN = "glassformer/known/"
"""Key of each rank that has found the lost processes and no longer uses the store."""


class ProcessLostError(GlassformerError):
    """Another process of this training ended or does not answer."""


@contextmanager
def watching_peers(world: World) -> Iterator[None]:
    """Raise ``ProcessLostError`` if another process ended or does not answer within the time limit of the group."""
    ended, answering = Event(), Thread()
    if world.size > 1:
        store = _get_default_store()
        with suppress(RuntimeError):  # a store without values, as of PyTorch's simulated process groups
            store.set(f"{HOST}{world.rank}", socket.gethostname())
        answering = Thread(target=_answer, args=(_of_own_connection(store), world.rank, ended), daemon=True)
        answering.start()
    try:
        yield
    except RuntimeError as error:
        if world.size == 1 or not is_lost_connection(error):
            raise
        lost = _lost(world, lambda: _stop(answering, ended))
        raise ProcessLostError(
            f"process {world.rank} of {world.size}: {lost} ({reason(error)}); see the messages of the others, "
            "and continue with --resume"
        ) from error
    finally:
        ended.set()


def reason(error: Exception) -> str:
    """The first sentence of an error of PyTorch, without the place in its source."""
    return str(error).strip().partition("\n")[0].rpartition("] ")[2].partition(". ")[0]


def _of_own_connection(store: dist.Store) -> dist.Store:
    """``store`` for another thread, which can use it while this one waits for a value.

    It is ``store`` itself if that has no second connection, as in PyTorch's simulated process groups.
    """
    try:
        return store.clone()  # type: ignore[attr-defined]  # absent from its stubs
    except (AttributeError, RuntimeError):
        return store


def _answer(store: dist.Store, rank: int, ended: Event) -> None:
    with suppress(RuntimeError):  # the process with the store has gone
        while not ended.wait(POLL_SECONDS):
            if store.check([QUESTION]):
                store.set(f"{ANSWER}{rank}", "")
                return


def _stop(answering: Thread, ended: Event) -> None:
    ended.set()
    answering.join(ANSWER_SECONDS)


def _lost(world: World, stop_answering: Callable[[], None]) -> str:
    """Ask who lives, and describe those who do not answer."""
    lost: list[str] = []
    asking = Thread(target=_ask, args=(_get_default_store(), world, lost, stop_answering), daemon=True)
    asking.start()
    asking.join(3 * ANSWER_SECONDS)  # without a connection the store waits longer
    if not lost:
        return f"the machine {os.environ.get('MASTER_ADDR', 'of process 0')}, where the processes meet, does not answer"
    return lost[0]


def _ask(store: dist.Store, world: World, result: list[str], stop_answering: Callable[[], None]) -> None:
    with suppress(RuntimeError):
        store.set(QUESTION, "")
        store.set(f"{ANSWER}{world.rank}", "")
        silent = _without(store, ANSWER, range(world.size))
        names = [f"process {rank} on {store.get(f'{HOST}{rank}').decode()}" for rank in silent]
        if names:
            result.append(f"{', '.join(names)} {'have' if len(names) > 1 else 'has'} ended, or cannot be reached")
        else:
            result.append("a process took longer than train.wait_seconds, and all of them still run; raise it")
        stop_answering()
        store.set(f"{KNOWN}{world.rank}", "")
        if world.rank == 0:  # the store may end with this process, while others still ask
            _without(store, KNOWN, [rank for rank in range(world.size) if rank not in silent])


def _without(store: dist.Store, key: str, ranks: Iterable[int]) -> list[int]:
    """Wait at most ``ANSWER_SECONDS`` for the ``key`` of all ranks; return the ranks without one."""
    deadline = monotonic() + ANSWER_SECONDS
    keys = {rank: f"{key}{rank}" for rank in ranks}
    while not store.check(list(keys.values())) and monotonic() < deadline:
        sleep(POLL_SECONDS / 5)
    return [rank for rank, name in keys.items() if not store.check([name])]
