"""Samples of a folder of shards, read by number; each shard is verified on its first use."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassformer.data.config import OnCorrupt
from glassformer.data.sampling import Indices
from glassformer.data.shards.shard_file import ShardFile
from glassformer.data.shards.shard_index import ShardIndex
from glassformer.data.shards.shard_writer import ranges
from glassformer.data.token_store import Ragged, digest
from glassformer.errors import DataError

RETRY_SECONDS = (0.1, 1.0)
"""Pauses before a shard that seems corrupt is read again: a network file system may be at fault."""


class CorruptShard(NamedTuple):
    """A shard that is not used."""

    path: str
    reason: str
    samples: int


@dataclass
class ShardSet:
    """The samples of a folder. Memory does not grow with its size: pages that were read are released."""

    folder: Path
    index: ShardIndex
    on_corrupt: OnCorrupt = "stop"
    corrupt: dict[int, CorruptShard] = field(default_factory=dict)
    """Shards that are skipped, by their numbers."""
    _open_shards: dict[int, ShardFile] = field(default_factory=dict)

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
        bounds = np.zeros((len(samples), self.arity + 1), np.int64)
        groups = list[tuple[ShardFile, Indices]]()
        for number, places in _grouped(shards, order):
            shard = self._open(number)
            if shard is None:
                continue
            first = (samples[places] - self.index.first_samples[number]) * self.arity
            with shard.reading() as rows:
                bounds[places] = rows.offsets[first[:, None] + np.arange(self.arity + 1)]
            groups.append((shard, places))
        present = bounds[:, -1] > 0
        lengths = np.diff(bounds, axis=1)
        offsets = np.concatenate([np.zeros((1, self.arity), np.int64), lengths.cumsum(0)])
        values = [np.empty(int(offsets[-1, column]), self.index.dtype) for column in range(self.arity)]
        for shard, places in groups:
            with shard.reading() as rows:
                for column in range(self.arity):
                    there, here = bounds[places, column], offsets[places, column]
                    many = lengths[places, column]
                    values[column][ranges(here, many)] = rows.values[ranges(there, many)]
        kept = np.append(True, present)
        return tuple(Ragged(v, offsets[kept, column]) for column, v in enumerate(values)), present

    def windows(self, begins: Indices, length: int) -> tuple[NDArray[np.integer], NDArray[np.bool_]]:
        """Windows of ``length`` values of the stream, which begin at ``begins``; and which of them were read."""
        rows, present = np.zeros((len(begins), length), self.index.dtype), np.ones(len(begins), np.bool_)
        ends = self.index.first_values
        shards = np.searchsorted(ends, begins, side="right") - 1
        for number, places in _grouped(shards, np.argsort(begins, kind="stable")):
            place, done = places, np.zeros(len(places), np.int64)
            while len(place):  # windows that begin in this shard, then their rest in the next ones
                first = begins[place] + done - ends[number]
                many = np.minimum(length - done, ends[number + 1] - begins[place] - done)
                shard = self._open(number)
                if shard is None:
                    present[place] = False
                else:
                    with shard.reading() as stored:
                        columns = ranges(done, many)
                        rows[np.repeat(place, many), columns] = stored.values[ranges(first, many)]
                done = done + many
                unfinished = done < length
                place, done, number = place[unfinished], done[unfinished], number + 1
        return rows[present], present

    def _open(self, number: int) -> ShardFile | None:
        """A shard, verified if it is used for the first time; None if it is corrupt and skipped."""
        if number not in self._open_shards and number not in self.corrupt:
            try:
                self._open_shards[number] = self._verified(number)
            except _CorruptError as error:
                self._refuse(number, str(error))
        return self._open_shards.get(number)

    def _verified(self, number: int) -> ShardFile:
        for seconds in (*RETRY_SECONDS, None):
            try:
                return self._verify(number)
            except _CorruptError:
                if seconds is None:
                    raise
                time.sleep(seconds)
        raise AssertionError

    def _verify(self, number: int) -> ShardFile:
        entry = self.index.shards[number]
        path = self.folder / entry.name
        try:
            if not path.is_file():
                raise _CorruptError("is missing")
            if (size := path.stat().st_size) != entry.bytes:
                raise _CorruptError(f"is damaged: it has {size:,} bytes and not {entry.bytes:,}")
            if digest(path) != entry.sha256:
                raise _CorruptError("is damaged: its SHA-256 is not the one in the index")
            shard = ShardFile.open(path)
        except OSError as error:
            raise _CorruptError(f"cannot be read ({error.strerror or error})") from None
        except (DataError, ValueError) as error:
            raise _CorruptError(str(error).removeprefix(f"{path}: ")) from None
        if (len(shard.rows), len(shard.rows.values)) != (entry.samples * self.arity, entry.values):
            raise _CorruptError("is damaged: it has other samples than the index says")
        return shard

    def _refuse(self, number: int, reason: str) -> None:
        entry = self.index.shards[number]
        path = str(self.folder / entry.name)
        if self.on_corrupt == "stop":
            raise DataError(
                f"{path}: {reason}; copy it again, prepare the shards again, or set data.on_corrupt=skip to train "
                f"without its {entry.samples:,} samples"
            )
        self.corrupt[number] = CorruptShard(path, reason, entry.samples)
        if len(self.corrupt) == len(self.index.shards):
            raise DataError(f"{self.folder}: every shard is corrupt ({path} {reason}); prepare the shards again")


class _CorruptError(Exception):
    """A shard is missing or damaged; the message says in which way."""


def _grouped(shards: Indices, order: Indices) -> list[tuple[int, Indices]]:
    """Each shard with the places of its samples, ``order``ed."""
    if not len(order):
        return []
    ordered = shards[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    return list(zip(ordered[starts].tolist(), np.split(order, starts[1:]), strict=True))
