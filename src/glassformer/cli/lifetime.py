"""The beginning and the end of a process, in which nothing need be looked through for garbage.

What is imported and loaded, some 300,000 objects, stays until the end, and there the system takes all of it back.
"""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

atexit.register(gc.freeze)  # else the last collection takes 0.2 to 0.4 s where torch was imported


@contextmanager
def loading() -> Iterator[None]:
    """Within it nothing is collected, and what is there at its end is never looked at again."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collecting:
            gc.enable()
