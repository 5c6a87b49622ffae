"""The beginning and the end of a process, in which nothing need be looked through for garbage, nor break off midway.

What is imported and loaded, some 300,000 objects, stays until the end, and there the system takes all of it back.
"""

import atexit
import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

atexit.register(gc.freeze)  # else the last collection takes 0.2 to 0.4 s where torch was imported

_loading: list[bool] = []


@contextmanager
def loading() -> Iterator[None]:
    """Within it nothing is collected, and what is there at its end is never looked at again; Ctrl-C waits for it."""
    collecting = gc.isenabled()
    gc.disable()
    _loading.append(True)
    try:
        yield
    finally:
        _loading.pop()
        gc.freeze()
        if collecting:
            gc.enable()


def interrupt_where_it_can_be() -> None:
    """From now on Ctrl-C waits for the end of an import, or of ``loading``.

    Libraries do not expect to be left in the middle of these: some take KeyboardInterrupt for a fault, some abort, some
    swallow it.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler and hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, _interrupt)
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if not _loading and not _importing(frame):
        raise KeyboardInterrupt
    signal.setitimer(signal.ITIMER_REAL, 0.05)  # then ask again


def _importing(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None
