"""Corpora of sentence pairs: read, filtered and encoded, a few thousand lines at a time, into a cache on disk."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.data.alignments import Aligned, AlignedLines
from glassformer.data.config import DataConfig
from glassformer.data.held_out import Part, nothing_held_out, of_part
from glassformer.data.parallel_text import PairRow, find_files, read_pair_rows
from glassformer.data.read_report import FileReadReport, ReadReport, Reason, TokenReadReport
from glassformer.data.readers import chunked, regular
from glassformer.data.token_store import (
    Contents,
    Ragged,
    RaggedWriter,
    account_of,
    content_digest,
    digest,
    ids_dtype,
    json_digest,
    open_or_build,
    ragged_writer,
)
from glassformer.errors import DataError
from glassformer.text import Tokenizer, TokenizerPair

COMPARED_EVERY = 16  # one in this many kept lines is decoded and compared with its text
CHARACTERS_PER_TOKEN = 64  # a line with more than this for each token allowed is too long without being encoded


@dataclass(frozen=True, eq=False)
class Corpus:
    """Pairs of token ids without special tokens, memory-mapped, so that a corpus may be larger than memory.

    ``fingerprint`` (SHA-256) covers the content of the files, the vocabularies and the filters: equal fingerprints
    mean equal examples in equal order. ``links``, if the words are aligned, holds the source and the target word of
    every link of a pair, one after the other. ``content_digest`` (SHA-256) covers the token ids themselves.
    """

    source: Ragged
    target: Ragged
    account: ReadReport
    fingerprint: str
    links: Ragged | None = None
    content_digest: str = ""

    def __len__(self) -> int:
        return len(self.source)

    @property
    def source_lengths(self) -> NDArray[np.int32]:
        """Tokens of each source sentence, without special tokens."""
        return self.source.lengths

    @property
    def target_lengths(self) -> NDArray[np.int32]:
        """Tokens of each target sentence, without special tokens."""
        return self.target.lengths

    def pair(self, index: int) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        if not 0 <= index < len(self):
            raise IndexError(f"pair {index} is out of range; choose 0 to {len(self) - 1}")
        return self.source[index], self.target[index]


def prepare(config: DataConfig, paths: list[str], tokenizers: TokenizerPair, alignments: Sequence[str] = ()) -> Corpus:
    """The corpus of all ``paths``, from the cache if it is there; without pairs held out for validation.

    ``alignments``: for each path a Pharaoh file with a line for each of its lines; or none at all.

    Raises ``DataError`` for files that cannot be read or do not pair up, when no pair is left, for links of words that
    are not there, when no pair that is left has one, and when the cache cannot be written.
    """
    key = fingerprint(config, paths, tokenizers, alignments)
    files = list(zip_longest(paths, alignments))
    return open_or_build(
        config.cache, key, partial(_open, key=key, paths=paths), partial(_build, config, files, tokenizers)
    )


def fingerprint(config: DataConfig, paths: list[str], tokenizers: TokenizerPair, alignments: Sequence[str] = ()) -> str:
    """SHA-256 over content, vocabularies and filters; file names do not enter. Reads every file once."""
    made_from: dict[str, Any] = {
        "files": [[found.form, *map(digest, found.files)] for found in (find_files(config, path) for path in paths)],
        "languages": [config.source, config.target],
        "vocabularies": [tokenizers.source.fingerprint, tokenizers.target.fingerprint],
        "filters": [config.max_length, config.max_length_ratio, config.drop_duplicates],
    }
    if config.validation_share:
        made_from["validation_share"] = config.validation_share
    if alignments:
        made_from["alignments"] = [digest(regular(Path(file))) for file in alignments]
    return json_digest(made_from)


def _open(folder: Path, index: dict[str, Any], key: str, paths: list[str]) -> Corpus | None:
    account = account_of(index, paths)
    names = ["source", "target", *(["links"] if "links" in index["dtypes"] else [])]
    sides = [Ragged.open(folder, name, index["dtypes"][name]) for name in names]
    if any(len(side) != account.kept or side.offsets[-1] != len(side.values) for side in sides):
        return None
    links = sides[2] if len(sides) > 2 else None
    return Corpus(sides[0], sides[1], account, key, links, content_digest(index))


def held_out_pairs(config: DataConfig, tokenizers: TokenizerPair) -> tuple[list[str], list[str], ReadReport]:
    """Held-out sources and targets (``config.validation_share``), filtered like training pairs, and their account."""
    account, sources, targets = ReadReport(), list[str](), list[str]()
    for path in config.train:
        file = FileReadReport(path)
        account.files.append(file)
        keep = PairFilter(config, tokenizers, "held_out")
        for chunk in chunked(read_pair_rows(config, path), _characters):
            for row, source, target in keep(chunk, file):
                sources.append(row.value.source)
                targets.append(row.value.target)
                account.source.count(np.array(source), tokenizers.source.unknown_id)
                account.target.count(np.array(target), tokenizers.target.unknown_id)
    if not sources:
        raise nothing_held_out(config.validation_share, config.train)
    return sources, targets, account


def _build(config: DataConfig, files: list[tuple[str, str | None]], tokenizers: TokenizerPair, build: Path) -> Contents:
    """``files``: each path, and the file of its alignments, which all of them have or none."""
    account, aligned = ReadReport(), [alignment for _, alignment in files if alignment is not None]
    with (
        _side_writer(build, "source", tokenizers.source) as source,
        _side_writer(build, "target", tokenizers.target) as target,
        ragged_writer(build, "links", "<i4") if aligned else nullcontext() as links,
    ):
        keep = PairFilter(config, tokenizers, "train" if config.validation_share else "all")
        for path, alignment in files:
            file = FileReadReport(path)
            account.files.append(file)
            lines = AlignedLines(alignment, path, tokenizers) if alignment is not None else None
            for chunk in chunked(read_pair_rows(config, path), _characters):
                kept = keep(chunk, file)
                source.append([ids for _, ids, _ in kept])
                target.append([ids for _, _, ids in kept])
                _compare(kept, sum(one.kept for one in account.files) - len(kept), source, target, tokenizers)
                if lines is not None and links is not None:
                    links.append(lines.links(chunk, kept))
            if lines is not None:
                lines.end()
    account.source, account.target = source.account, target.account
    if not account.kept:
        raise account.nothing_left("pair", "give text of both languages, as UTF-8, or raise data.max_length")
    if links is not None and not links.total:
        raise DataError(f"{', '.join(aligned)}: no pair that is kept has a link; leave data.alignments out")
    written = {"source": source.rows, "target": target.rows} | ({"links": links} if links is not None else {})
    return Contents({name: rows.dtype for name, rows in written.items()}, account, {})


def _compare(
    kept: list[Aligned], before: int, source: "_SideWriter", target: "_SideWriter", pair: TokenizerPair
) -> None:
    """Decode one in ``COMPARED_EVERY`` kept lines, counted on from ``before``, to count lost characters."""
    for row, ids, target_ids in kept[-before % COMPARED_EVERY :: COMPARED_EVERY]:
        source.account.compare(row.value.source, pair.source.decode(ids))
        target.account.compare(row.value.target, pair.target.decode(target_ids))


class PairFilter:
    """Filter of the pairs of a chunk, which counts the first reason that applies to a pair."""

    def __init__(self, config: DataConfig, tokenizers: TokenizerPair, part: Part) -> None:
        self.config, self.tokenizers, self.part = config, tokenizers, part
        self.seen = SeenHashes()

    def __call__(self, chunk: list[PairRow], file: FileReadReport) -> list[Aligned]:
        chunk = of_part(chunk, self.part, self.config.validation_share, lambda pair: [pair.source], file)
        file.read += len(chunk)
        texts = _without(chunk, [self._text_fault(row) for row in chunk], file)
        sources = self.tokenizers.source.encode_batch([row.value.source for row in texts])
        targets = self.tokenizers.target.encode_batch([row.value.target for row in texts])
        faults = [self._token_fault(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        if self.config.drop_duplicates:
            self._find_duplicates(texts, faults)
        file.kept += len(_without(texts, faults, file))
        pairs = zip(texts, sources, targets, faults, strict=True)
        return [(row, source, target) for row, source, target, fault in pairs if fault is None]

    def _text_fault(self, row: PairRow) -> Reason | None:
        if row.fault:
            return row.fault
        if not row.value.source.strip() or not row.value.target.strip():
            return "empty"
        longest = CHARACTERS_PER_TOKEN * self.config.max_length
        return "too_long" if max(len(row.value.source), len(row.value.target)) > longest else None

    def _token_fault(self, source: int, target: int) -> Reason | None:
        """Text may have no tokens although it is not blank, as when normalization removes it."""
        shorter, longer = min(source, target), max(source, target)
        if not shorter:
            return "empty"
        if longer + 1 > self.config.max_length:  # + 1: the end of the sentence
            return "too_long"
        limit = self.config.max_length_ratio
        return "length_ratio" if limit and longer > limit * shorter else None

    def _find_duplicates(self, texts: list[PairRow], faults: list[Reason | None]) -> None:
        candidates = [index for index, fault in enumerate(faults) if fault is None]
        hashes = np.array([pair_hash(texts[index]) for index in candidates], np.uint64)
        for index, new in zip(candidates, self.seen.add(hashes), strict=True):
            if not new:
                faults[index] = "duplicate"


def _without(rows: list[PairRow], faults: list[Reason | None], file: FileReadReport) -> list[PairRow]:
    kept = []
    for row, fault in zip(rows, faults, strict=True):
        if fault is None:
            kept.append(row)
        else:
            file.drop(fault, row.line)
    return kept


def pair_hash(row: PairRow) -> int:
    """64 bits; ``\\xff`` occurs in no UTF-8, so it parts the sides without doubt.

    Of n different pairs about n²/2⁶⁵ are lost to chance: one in a million at 6 million pairs.
    """
    pair = row.value.source.encode() + b"\xff" + row.value.target.encode()
    return int.from_bytes(hashlib.blake2b(pair, digest_size=8).digest(), "little")


class SeenHashes:
    """A set of 64-bit hashes at 8 bytes each, as sorted runs; each run is more than twice as long as the next.

    A Python set takes about 70 bytes a hash, and one sorted array would be copied for every chunk.
    """

    def __init__(self) -> None:
        self.runs: list[NDArray[np.uint64]] = []

    def add(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each hash whether it is new, here and ever."""
        new = np.zeros(len(hashes), np.bool_)
        new[np.unique(hashes, return_index=True)[1]] = True
        for run in self.runs:
            places = np.searchsorted(run, hashes).clip(max=len(run) - 1)
            new &= run[places] != hashes
        run = np.sort(hashes[new])
        while self.runs and len(self.runs[-1]) <= 2 * len(run):
            run = np.sort(np.concatenate([self.runs.pop(), run]), kind="stable")
        if len(run):
            self.runs.append(run)
        return new


def _characters(row: PairRow) -> int:
    return sum(map(len, row.value))


class _SideWriter:
    """Writer of the sentences of one side, which counts their tokens."""

    def __init__(self, rows: RaggedWriter, tokenizer: Tokenizer) -> None:
        self.rows, self.unknown_id, self.account = rows, tokenizer.unknown_id, TokenReadReport()

    def append(self, sentences: list[list[int]]) -> None:
        self.account.count(self.rows.append(sentences), self.unknown_id)


@contextmanager
def _side_writer(folder: Path, side: str, tokenizer: Tokenizer) -> Iterator[_SideWriter]:
    with ragged_writer(folder, side, ids_dtype(tokenizer.vocab_size)) as rows:
        yield _SideWriter(rows, tokenizer)
