"""Samples of a folder of shards, read by number; each shard is verified on its first use."""

import errno
import os
import resource
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import file_digest
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassformer.data.config import OnCorrupt
from glassformer.data.sampling import Indices
from glassformer.data.shards.shard_file import ShardFile
from glassformer.data.shards.shard_index import ShardIndex
from glassformer.data.token_store import Ragged, ranges
from glassformer.errors import DataError

RETRY_SECONDS = (0.1, 1.0)
"""Pauses before a shard that seems corrupt is read again: a network file system may be at fault."""
MAX_MAPPED = 1024
"""Shards that are mapped at a time; each has a file descriptor."""
DESCRIPTOR_SHARE = 8
"""At most one in so many of the descriptors that the process may open is that of a shard."""
EXHAUSTED: dict[int | None, str] = {
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "close programs with many open files",
    errno.ENOMEM: "free memory, or raise its limit (ulimit -v)",
}
"""Errors of the process or the machine, which say nothing about a shard; and their remedies."""


class CorruptShard(NamedTuple):
    """A shard that is not used."""

    path: str
    reason: str
    samples: int
    content: str
    """Content in words: samples, or tokens of a stream, whose windows span shards."""


@dataclass
class ShardSet:
    """The samples of a folder.

    Memory and open files do not grow with its size: pages that were read are released, and only the shards that were
    used last stay mapped.
    """

    folder: Path
    index: ShardIndex
    on_corrupt: OnCorrupt = "stop"
    divisible: bool = False
    """True if a sample may go on in the next shard, as a document of a stream does."""
    corrupt: dict[int, CorruptShard] = field(default_factory=dict)
    """Shards that are skipped, by their numbers."""
    _mapped: OrderedDict[int, ShardFile] = field(default_factory=OrderedDict)
    _verified: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Identity of the file of each verified shard; another file in its place is verified again."""

    @property
    def arity(self) -> int:
        """Rows of a sample."""
        return len(self.index.columns)

    def columns(self, samples: Indices) -> tuple[tuple[Ragged, ...], NDArray[np.bool_]]:
        """The columns of some samples, by number, in this order; and which of the samples are in them.

        Samples of corrupt shards are not.
        """
        shards = np.searchsorted(self.index.first_samples, samples, side="right") - 1
        order = np.lexsort((samples, shards))
        lengths, present = np.zeros((len(samples), self.arity), np.int64), np.zeros(len(samples), np.bool_)
        read = list[tuple[Indices, list[NDArray[np.integer]]]]()
        for number, indices in _grouped(shards, order):
            shard = self._open(number)
            if shard is None:
                continue
            first = (samples[indices] - self.index.first_samples[number]) * self.arity
            with shard.reading() as rows:
                bounds = rows.offsets[first[:, None] + np.arange(self.arity + 1)].astype(np.int64)
                begins, lengths[indices] = bounds[:, :-1], np.diff(bounds, axis=1)
                columns = [ranges(begins[:, i], lengths[indices, i]) for i in range(self.arity)]
                read.append((indices, [rows.values[column] for column in columns]))
            present[indices] = True
        offsets = np.concatenate([np.zeros((1, self.arity), np.int64), lengths.cumsum(0)])
        values = [np.empty(int(offsets[-1, column]), self.index.dtype) for column in range(self.arity)]
        for indices, stored in read:
            for column in range(self.arity):
                values[column][ranges(offsets[indices, column], lengths[indices, column])] = stored[column]
        kept = np.append(True, present)
        return tuple(Ragged(v, offsets[kept, column]) for column, v in enumerate(values)), present

    def windows(self, begins: Indices, length: int) -> tuple[NDArray[np.integer], NDArray[np.bool_]]:
        """Windows of ``length`` values of the stream, which begin at ``begins``; and which of them were read."""
        rows, present = np.zeros((len(begins), length), self.index.dtype), np.ones(len(begins), np.bool_)
        ends = self.index.first_values
        shards = np.searchsorted(ends, begins, side="right") - 1
        for number, windows in _grouped(shards, np.argsort(begins, kind="stable")):
            done = np.zeros(len(windows), np.int64)
            while len(windows):  # windows that begin in this shard, then their rest in the next ones
                first = begins[windows] + done - ends[number]
                many = np.minimum(length - done, ends[number + 1] - begins[windows] - done)
                shard = self._open(number)
                if shard is None:
                    present[windows] = False
                else:
                    with shard.reading() as stored:
                        columns = ranges(done, many)
                        rows[np.repeat(windows, many), columns] = stored.values[ranges(first, many)]
                done = done + many
                unfinished = done < length
                windows, done, number = windows[unfinished], done[unfinished], number + 1
        return rows[present], present

    def _open(self, number: int) -> ShardFile | None:
        """A shard, mapped; None if it is corrupt and skipped."""
        shard = self._mapped.get(number)
        if shard is not None:
            self._mapped.move_to_end(number)
            return shard
        if number in self.corrupt:
            return None
        try:
            shard = self._map_with_room(number)
        except _CorruptError as error:
            self._refuse(number, str(error))
            return None
        self._mapped[number] = shard
        return shard

    def _map_with_room(self, number: int) -> ShardFile:
        """Map a shard after the release of others, as many as the limits of the process require."""
        while len(self._mapped) >= max_mapped():
            self._mapped.popitem(last=False)  # unmapped with its last reference
        try:
            return self._map_again(number)
        except OSError:
            self._mapped.clear()
        try:
            return self._map_again(number)
        except OSError as error:
            raise DataError(
                f"{self.folder / self.index.shards[number].name}: cannot be opened ({error.strerror}); "
                f"{EXHAUSTED[error.errno]}"
            ) from None

    def _map_again(self, number: int) -> ShardFile:
        """Map a shard, in more than one attempt if it seems corrupt."""
        for seconds in (*RETRY_SECONDS, None):
            try:
                return self._map(number)
            except _CorruptError:
                if seconds is None:
                    raise
                time.sleep(seconds)
        raise AssertionError

    def _map(self, number: int) -> ShardFile:
        """Map a shard, verified unless it was before. Raises ``_CorruptError``, or ``OSError`` of ``EXHAUSTED``."""
        entry = self.index.shards[number]
        path = self.folder / entry.name
        try:
            if not path.is_file():
                raise _CorruptError("is missing")
            with path.open("rb", buffering=0) as file:
                status = os.fstat(file.fileno())
                identity = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
                if self._verified.get(number) != identity:
                    if status.st_size != entry.bytes:
                        raise _CorruptError(f"is damaged: it has {status.st_size:,} bytes and not {entry.bytes:,}")
                    if file_digest(file, "sha256").hexdigest() != entry.sha256:
                        raise _CorruptError("is damaged: its SHA-256 is not the one in the index")
                    self._verified[number] = identity
                shard = ShardFile.map(file)
        except OSError as error:
            if error.errno in EXHAUSTED:
                raise
            raise _CorruptError(f"cannot be read ({error.strerror or error})") from None
        except ValueError as error:
            raise _CorruptError(str(error)) from None
        if (len(shard.rows), len(shard.rows.values)) != (entry.samples * self.arity, entry.values):
            raise _CorruptError("is damaged: it has other samples than the index says")
        return shard

    def _refuse(self, number: int, reason: str) -> None:
        entry = self.index.shards[number]
        path = str(self.folder / entry.name)
        if self.on_corrupt == "stop":
            raise DataError(
                f"{path}: {reason}; copy it again, prepare the shards again, or set data.on_corrupt=skip to train "
                f"without its {entry.content(self.divisible)}"
            )
        self.corrupt[number] = CorruptShard(path, reason, entry.samples, entry.content(self.divisible))
        if len(self.corrupt) == len(self.index.shards):
            raise DataError(f"{self.folder}: every shard is corrupt ({path} {reason}); prepare the shards again")


def max_mapped() -> int:
    """Shards that this process may map at a time."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_MAPPED if limit == resource.RLIM_INFINITY else max(1, min(MAX_MAPPED, limit // DESCRIPTOR_SHARE))


class _CorruptError(Exception):
    """A shard is missing or damaged; the message says in which way."""


def _grouped(shards: Indices, order: Indices) -> list[tuple[int, Indices]]:
    """Each shard with the indices of its samples, ``order``ed."""
    if not len(order):
        return []
    ordered = shards[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    return list(zip(ordered[starts].tolist(), np.split(order, starts[1:]), strict=True))
