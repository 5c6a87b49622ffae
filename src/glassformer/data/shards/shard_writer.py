"""Writer of samples into shards of a fixed size, which can go on after the last finished one."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from glassformer.data.shards.shard_file import ShardFileWriter, shard_name
from glassformer.data.shards.shard_index import ShardEntry
from glassformer.data.token_store import Ragged, digest, ranges


class ShardWriter:
    """Writer of the shards of a folder.

    A shard has at most ``shard_tokens`` values. ``divisible`` samples, the documents of a stream, go on in the next
    shard; any other sample is in one shard, and one that is longer has a shard for itself. ``skip`` values at the
    beginning are in ``finished`` shards already. ``on_finish`` is called after each shard.
    """

    def __init__(
        self,
        folder: Path,
        dtype: str,
        counted: Sequence[bool],
        shard_tokens: int,
        divisible: bool,
        on_finish: Callable[[], None],
    ) -> None:
        """``counted``: for each row of a sample whether its values are tokens."""
        self.folder, self.dtype, self.counted = folder, dtype, np.array(counted)
        self.shard_tokens, self.divisible, self.on_finish = shard_tokens, divisible, on_finish
        self.finished = list[ShardEntry]()
        self.skip = 0
        self.file: ShardFileWriter | None = None

    @property
    def finished_values(self) -> int:
        return sum(shard.values for shard in self.finished)

    def append(self, rows: Ragged) -> None:
        """Write the rows of samples, one after the other."""
        rows = self._without_skipped(rows)
        while len(rows):
            file = self._open()
            room = self.shard_tokens - file.n_values
            n_rows, within = self._fitting(rows, room)
            if not n_rows and not within and file.n_rows:
                self._finish()
                continue
            first, rows = _divided(rows, n_rows or (0 if within else len(self.counted)), within)
            file.append(first)

    def close(self) -> None:
        """Finish the last shard."""
        if self.file is not None:
            self._finish()

    def discard(self) -> None:
        if self.file is not None:
            self.file.discard()

    def _open(self) -> ShardFileWriter:
        if self.file is None:
            self.file = ShardFileWriter(self.folder / shard_name(len(self.finished)), self.dtype)
        return self.file

    def _fitting(self, rows: Ragged, room: int) -> tuple[int, int]:
        """Rows that fit ``room`` values, a whole number of samples; and values of the next row that do too."""
        arity = len(self.counted)
        ends = rows.offsets[arity::arity] - rows.offsets[0]
        n_rows = int(np.searchsorted(ends, room, side="right")) * arity
        if not self.divisible or n_rows == len(rows):
            return n_rows, 0
        return n_rows, room - int(rows.offsets[n_rows] - rows.offsets[0])

    def _without_skipped(self, rows: Ragged) -> Ragged:
        if not self.skip or not len(rows):
            return rows
        ends = rows.offsets[1:] - rows.offsets[0]
        skipped = min(self.skip, int(ends[-1]))
        self.skip -= skipped
        n_rows = int(np.searchsorted(ends, skipped, side="right"))
        return _divided(rows, n_rows, skipped - int(rows.offsets[n_rows] - rows.offsets[0]))[1]

    def _finish(self) -> None:
        assert self.file is not None
        file, self.file = self.file, None
        lengths = np.diff(np.concatenate(file.offsets)).reshape(-1, len(self.counted))
        file.finish()
        self.finished.append(
            ShardEntry(
                file.path.name,
                len(lengths),
                file.n_values,
                int(lengths[:, self.counted].sum()),
                file.path.stat().st_size,
                digest(file.path),
            )
        )
        self.on_finish()


def interleaved(columns: Sequence[Ragged]) -> Ragged:
    """Rows of samples one after the other, from one ``Ragged`` for each row of a sample."""
    if len(columns) == 1:
        return columns[0]
    lengths = np.stack([np.diff(column.offsets) for column in columns], axis=1)
    offsets = np.concatenate([np.zeros(1, np.int64), lengths.ravel().cumsum()])
    values = np.empty(int(offsets[-1]), np.result_type(*(column.values for column in columns)))
    for number, column in enumerate(columns):
        begins = offsets[number : -1 : len(columns)]
        values[ranges(begins, lengths[:, number])] = column.values[int(column.offsets[0]) : int(column.offsets[-1])]
    return Ragged(values, offsets)


def _divided(rows: Ragged, n_rows: int, within: int) -> tuple[Ragged, Ragged]:
    """The first ``n_rows`` and ``within`` values of the next one; and what follows."""
    if not within:
        return Ragged(rows.values, rows.offsets[: n_rows + 1]), Ragged(rows.values, rows.offsets[n_rows:])
    cut = rows.offsets[n_rows] + within
    return (
        Ragged(rows.values, np.append(rows.offsets[: n_rows + 1], cut)),
        Ragged(rows.values, np.append(cut, rows.offsets[n_rows + 1 :])),
    )
