"""Memory: that freed blocks are kept for the next step, that what a start read of libraries is let go, and that what
cannot fit is refused in a line.

By default the C library maps every large tensor afresh and its pages are faulted in.
"""

import ctypes
import functools
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glassformer.config import DataError

_NEVER_ASKED = 1 << 24
"""Bytes; asking takes as long as a short sentence's first layer."""

_MADV_DONTNEED = 4
_MAPPINGS_OF_CODE = re.compile(r"^([0-9a-f]+-[0-9a-f]+) r-xp \S+ \S+ +[1-9].*((?:\n[A-Z].*)*)", re.MULTILINE)
_CHANGED = re.compile(r"^(Anonymous|Swap|Private_Hugetlb|Shared_Hugetlb): +[1-9]", re.MULTILINE)
"""Of code that was written to in memory, as by a debugger, even if swapped out since; or on pages of another kind."""
_RAN_OUT = re.compile(r"out of memory|not enough memory|can.t allocate memory|ALLOC_FAILED", re.IGNORECASE)
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def keep_freed_memory() -> bool:
    """Ask glibc to keep freed blocks for the next step; False where the C library does not know how.

    A training step frees and takes nearly the same sizes again. The price is memory: batches differ in shape, so the
    heap is cut up differently each time and the resident size grows (to 3.6 GiB in half an hour at 7.6 M parameters).
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = {_M_MMAP_THRESHOLD: 1 << 30, _M_TRIM_THRESHOLD: (1 << 31) - 1, _M_TOP_PAD: 64 << 20}
    return all(mallopt(name, value) for name, value in settings.items())


@functools.cache
def release_libraries(after: str) -> None:
    """Once in a process for each ``after``: give back the pages of libraries' code; those it uses again come back.

    Importing PyTorch runs once through code all over its libraries, loading a model through some, and Linux counts
    the whole neighbourhood of each place as this process's: 60 to 150 MiB, as its cache of the files happens to lie, of
    which translating uses a third. It takes less than ten milliseconds. Only Linux is asked, and only for code that
    nobody has written to.
    """
    if sys.platform != "linux":
        return
    advise = getattr(ctypes.CDLL(None), "madvise", None)
    if advise is None:
        return
    try:
        told = Path("/proc/self/smaps").read_text(errors="replace")
    except OSError:
        return
    for span, mapping in _MAPPINGS_OF_CODE.findall(told):
        if "\nAnonymous:" in mapping and not _CHANGED.search(mapping):
            start, stop = (int(number, 16) for number in span.split("-"))
            advise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), _MADV_DONTNEED)


@contextmanager
def fitting_memory(tokens: int, needed: int = 0) -> Iterator[None]:
    """Refuse what the longest text, of ``tokens``, makes too large: before it takes ``needed`` bytes, or as it fails.

    Before, since the system lets a process begin to fill memory that is not there, and kills it then.
    """
    fault = f"a text of {tokens:,} tokens does not fit the memory; split it into sentences"
    if needed > _NEVER_ASKED and needed > _available():
        raise DataError(fault)
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        raise DataError(fault) from None


def out_of_memory(error: Exception) -> bool:
    """Whether memory ran out: PyTorch says so in a class of its own for a GPU, and only in words for a CPU.

    Not every error with memory in it is one: an illegal access on a GPU is a fault of the program.
    """
    return isinstance(error, MemoryError) or _RAN_OUT.search(str(error)) is not None


def _available() -> float:
    """Bytes that can be had without swapping; unlimited where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return float("inf")
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), float("inf"))
