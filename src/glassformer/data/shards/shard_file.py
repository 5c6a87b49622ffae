"""File of one shard: a header, the values of its rows end to end, and the table of their offsets.

All numbers are little-endian. The header has 64 bytes: the magic, then as 64-bit numbers the version of the format, the
bytes of a value (2: unsigned, 4: signed), the number of rows, and the number of values. Row ``i`` is
``values[offsets[i] : offsets[i + 1]]``. The offsets are unsigned 32-bit numbers and begin at a multiple of 8 bytes.
"""

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import IO, Self

import numpy as np
from numpy.typing import NDArray

from glassformer.data.token_store import Ragged
from glassformer.storage.manifest import sync

MAGIC, VERSION = b"GLFSHARD", 1
HEADER_BYTES = 64
TYPES = {2: "<u2", 4: "<i4"}
MAX_VALUES = 2**32 - 1


def shard_name(number: int) -> str:
    """Name of the file of a shard, which sorts by its number."""
    return f"{number:08d}.shard"


class ShardFileWriter:
    """Writer of one shard, under a temporary name until it is complete."""

    def __init__(self, path: Path, dtype: str) -> None:
        self.path, self.dtype = path, dtype
        self.unfinished = path.with_name(path.name + ".unfinished")
        self.file: BufferedIOBase = self.unfinished.open("wb")
        self.file.write(bytes(HEADER_BYTES))
        self.offsets: list[NDArray[np.uint32]] = [np.zeros(1, np.uint32)]
        self.n_values = self.n_rows = 0

    def append(self, rows: Ragged) -> None:
        if not len(rows):
            return
        begin, end = int(rows.offsets[0]), int(rows.offsets[-1])
        self.file.write(np.ascontiguousarray(rows.values[begin:end], self.dtype).tobytes())
        self.offsets.append((self.n_values + rows.offsets[1:] - begin).astype(np.uint32))
        self.n_values += end - begin
        self.n_rows += len(rows)

    def finish(self) -> None:
        """Write the table of offsets and the header, and give the file its name once it is on the disk."""
        itemsize = np.dtype(self.dtype).itemsize
        self.file.write(bytes(-(self.n_values * itemsize) % 8))
        self.file.write(np.concatenate(self.offsets).astype("<u4").tobytes())
        self.file.seek(0)
        self.file.write(MAGIC + np.array([VERSION, itemsize, self.n_rows, self.n_values], "<u8").tobytes())
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        os.replace(self.unfinished, self.path)
        sync(self.path.parent)

    def discard(self) -> None:
        self.file.close()
        self.unfinished.unlink(missing_ok=True)


@dataclass(frozen=True, eq=False)
class ShardFile:
    """The rows of one shard, mapped into memory.

    The mapping holds a descriptor of its own (``mmap`` duplicates it) until this object and its rows are freed.
    """

    rows: Ragged
    mapping: mmap.mmap

    @classmethod
    def map(cls, file: IO[bytes]) -> Self:
        """Map an open shard. Raises ``OSError``, or ``ValueError`` if the file is not a shard of this version."""
        mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        # Samples are read in random order; readahead would read what is not needed.
        mapping.madvise(mmap.MADV_RANDOM)
        version, itemsize, n_rows, n_values = np.frombuffer(mapping, "<u8", 4, len(MAGIC)).tolist()
        if mapping[: len(MAGIC)] != MAGIC or version != VERSION or itemsize not in TYPES:
            raise ValueError("is not a shard of this version")
        begin = HEADER_BYTES + n_values * itemsize
        offsets = np.frombuffer(mapping, "<u4", n_rows + 1, begin + -begin % 8)
        return cls(Ragged(np.frombuffer(mapping, TYPES[itemsize], n_values, HEADER_BYTES), offsets), mapping)

    @contextmanager
    def reading(self) -> Iterator[Ragged]:
        """The rows; afterwards their pages no longer count as memory of this process, but stay in the page cache."""
        try:
            yield self.rows
        finally:
            self.mapping.madvise(mmap.MADV_DONTNEED)
