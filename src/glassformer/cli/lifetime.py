"""The beginning and the end of a process, in which nothing need be looked through for garbage, nor break off midway.

What is imported and loaded, some 300,000 objects, stays until the end, and there the system takes all of it back.
"""

import atexit
import gc
import os
import signal
import threading
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
    swallow it. Only the main thread may say so; in another one nothing changes.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        return
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _end):
        signal.signal(signal.SIGALRM, _interrupt)
        signal.signal(signal.SIGINT, _interrupt)


def end_at_interrupt() -> bool:
    """Let Ctrl-C end the process at once from now on; return True if one is pending."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, _end)
    return _ask_again_in(0)


def _end(number: int, frame: FrameType | None) -> None:
    """Exit at once: while Python shuts down, KeyboardInterrupt would be printed as an uncaught exception."""
    os._exit(130)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _loading or _importing(frame):
        _ask_again_in(0.05)
        return
    _ask_again_in(0)  # pressed twice, it comes once
    now = signal.getsignal(signal.SIGINT)
    if now is _interrupt or not callable(now):
        raise KeyboardInterrupt
    now(signal.SIGINT, frame)  # who has taken Ctrl-C over since it was pressed


def _ask_again_in(seconds: float) -> bool:
    """Whether that was due already; 0 is never."""
    return hasattr(signal, "setitimer") and signal.setitimer(signal.ITIMER_REAL, seconds)[0] > 0


def _importing(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None
