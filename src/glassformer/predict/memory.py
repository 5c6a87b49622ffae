"""Out-of-memory errors: recognize them, and refuse a text that does not fit before the system kills the process.

This module only reads memory figures. ``cli/process.py`` configures malloc, for the command.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glassformer.errors import DataError

_UNCHECKED_BYTES = 1 << 24
"""Requests up to this size are not compared with the free memory: reading that takes as long as a short sentence's
first layer."""

_OUT_OF_MEMORY = re.compile(r"out of memory|not enough memory|can.t allocate memory|ALLOC_FAILED", re.IGNORECASE)


@contextmanager
def fitting_memory(tokens: int, needed: int = 0) -> Iterator[None]:
    """Raise ``DataError`` for a text of ``tokens`` tokens that does not fit the memory.

    Raises before the block runs if ``needed`` exceeds the free memory, else when an allocation in it fails. The check
    in advance is necessary: Linux overcommits memory and kills the process once the pages are written.

    Args:
        tokens: The length of the longest text, for the message.
        needed: A lower bound of the bytes that the block allocates.

    Raises:
        DataError: The text does not fit, or an allocation in the block failed; the message says its length and that
            splitting it helps. Other errors of the block pass.
    """
    fault = f"a text of {tokens:,} tokens does not fit in memory; split it into sentences"
    if needed > _UNCHECKED_BYTES and needed > _available():
        raise DataError(fault)
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        raise DataError(fault) from None


def out_of_memory(error: Exception) -> bool:
    """Return True if ``error`` reports that memory ran out.

    PyTorch has an exception class for GPUs only; on a CPU the message is matched. Messages such as "illegal memory
    access" do not match.
    """
    return isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(str(error)) is not None


def _available() -> float:
    """Bytes that can be allocated without swapping; infinite where the system does not report them."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return float("inf")
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), float("inf"))
