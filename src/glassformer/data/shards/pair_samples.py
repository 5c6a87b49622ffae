"""Samples of translation: source and target of a pair, filtered as in training from files."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.data.corpus import COMPARED_EVERY, PairFilter, SeenHashes, pair_hash
from glassformer.data.held_out import Part
from glassformer.data.parallel_text import PairRow, find_files, read_pair_rows
from glassformer.data.read_report import FileReadReport
from glassformer.data.readers import chunked
from glassformer.data.shards.samples import Chunk, Encoded, Samples, Written, ragged
from glassformer.data.token_store import Ragged


class PairSamples(Samples[PairRow]):
    """Pairs of sentences, without special tokens."""

    columns = ("source", "target")
    decisive = ("source", "target", "validation_share", "max_length", "max_length_ratio", "drop_duplicates")

    def files(self, path: str) -> list[str]:
        return [str(file) for file in find_files(self.config, path).files]

    def chunks(self, path: str) -> Iterator[Chunk[PairRow]]:
        yield from map(Chunk, chunked(read_pair_rows(self.config, path), _characters))

    @cached_property
    def _filter(self) -> PairFilter:
        """Duplicates are found when the samples are assembled, since another process may have the first one."""
        part: Part = "train" if self.config.validation_share else "all"
        return PairFilter(self.config.model_copy(update={"drop_duplicates": False}), self.tokenizers, part)

    def encode(self, chunk: Chunk[PairRow], path: str) -> Encoded:
        file = FileReadReport(path)
        kept = self._filter(chunk.rows, file)
        encoded = Encoded((ragged([ids for _, ids, _ in kept]), ragged([ids for _, _, ids in kept])), file)
        for row, source, target in kept[::COMPARED_EVERY]:
            encoded.source.compare(row.value.source, self.tokenizers.source.decode(source))
            encoded.target.compare(row.value.target, self.tokenizers.target.decode(target))
        if self.config.drop_duplicates:
            encoded.hashes = np.array([pair_hash(row) for row, _, _ in kept], np.uint64)
            encoded.lines = np.array([row.line for row, _, _ in kept], np.int64)
        return encoded

    def assemble(self, encoded: Encoded, chunk: Chunk[Any], written: Written) -> Iterator[tuple[Ragged, ...]]:
        if encoded.hashes is not None:
            self._drop_duplicates(encoded, written)
        (columns,) = super().assemble(encoded, chunk, written)
        written.account.source.count(columns[0].values, self.tokenizers.source.unknown_id)
        written.account.target.count(columns[1].values, self.tokenizers.target.unknown_id)
        yield columns

    def restore(self, folder: Path, written: Written) -> None:
        """Begin or go on with a file; 8 bytes for each pair are in memory if duplicates are dropped."""
        super().restore(folder, written)
        self._seen, self._stored = SeenHashes(), folder / f"hashes-{written.file}"
        if self.config.drop_duplicates:
            with self._stored.open("ab") as file:
                file.truncate(8 * written.hashes)
            for block in np.array_split(np.fromfile(self._stored, "<u8"), -(-written.hashes // (1 << 20)) or 1):
                self._seen.add(block.astype(np.uint64))

    def _drop_duplicates(self, encoded: Encoded, written: Written) -> None:
        assert encoded.hashes is not None and encoded.lines is not None
        new = self._seen.add(encoded.hashes)
        with self._stored.open("ab") as file:
            file.write(encoded.hashes[new].astype("<u8").tobytes())
        written.hashes += int(new.sum())
        for line in encoded.lines[~new].tolist():
            encoded.file.drop("duplicate", line)
            encoded.file.kept -= 1
        chosen = np.flatnonzero(new).tolist()
        encoded.columns = tuple(ragged([column[i] for i in chosen]) for column in encoded.columns)


def _characters(row: PairRow) -> int:
    return sum(map(len, row.value))
