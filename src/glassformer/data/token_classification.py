"""Sentences with a tag a word, on its first piece (Devlin et al. 2019, section 5.3): files, examples and batches."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int64
from numpy.typing import NDArray
from torch import Tensor

from glassformer.data.config import TaggedConfig
from glassformer.data.held_out import Part, is_held_out, nothing_held_out, of_part, unknown_class
from glassformer.data.loader import Draw, ResumableLoader, Tensors
from glassformer.data.read_report import FileReadReport, ReadReport, Reason
from glassformer.data.readers import (
    JSON_ROWS,
    Row,
    chunked,
    json_rows,
    raw_lines,
    regular,
    require_unicode,
    uncompressed,
)
from glassformer.data.sampling import Indices
from glassformer.data.sequences import Frame, sequence_sampler
from glassformer.data.token_store import Ragged, json_digest
from glassformer.errors import DataError
from glassformer.text import Tokenizer

DOCUMENT_MARK = "-DOCSTART-"
"""Word of a CoNLL-2003 line between documents, which is not a sentence."""
_CONLL_U = re.compile(rb"(1|1-\d+|0\.1)\t([^\t]+\t){8}[^\t]+")
"""The first line of ten columns, one of them the number of the word: of words written as one 1-2, of none 0.1."""


class TaggedWords(NamedTuple):
    words: list[str]
    tags: list[str]
    lines_a_word: int = 1  # 0: all on one line


TaggedRow = Row[TaggedWords]


def read_tagged(config: TaggedConfig, path: str) -> Iterator[TaggedRow]:
    """Every sentence of ``path`` in order, faulty ones included. A line is that of the first word, or of the fault."""
    lines = raw_lines(regular(Path(path)), limit=config.max_line_bytes)
    return _jsonl(lines, config) if uncompressed(path).endswith(JSON_ROWS) else _columns(lines, path)


def _columns(lines: Iterator[bytes], path: str) -> Iterator[TaggedRow]:
    sentence, begun = Row(0, TaggedWords([], [])), False
    for line, raw in enumerate(lines, start=1):
        if not begun and raw.strip() and not raw.startswith(b"#"):
            begun = True
            _refuse_conll_u(raw, f"{path}, line {line}")
        if not raw.strip():
            if sentence.value.words or sentence.fault:
                yield sentence
            sentence = Row(0, TaggedWords([], []))
            continue
        if sentence.fault:
            continue
        try:
            columns = raw.decode().split("\t" if b"\t" in raw else " ")
        except UnicodeDecodeError:
            sentence = Row(line, TaggedWords([], []), "invalid_utf8")
            continue
        columns = [column for column in columns if column]
        if not columns or columns[0] == DOCUMENT_MARK:
            continue
        if len(columns) == 1:
            sentence = Row(line, TaggedWords([], []), "malformed")
            continue
        sentence = sentence if sentence.line else sentence._replace(line=line)
        sentence.value.words.append(columns[0])
        sentence.value.tags.append(columns[-1])
    if sentence.value.words or sentence.fault:
        yield sentence


def _refuse_conll_u(raw: bytes, where: str) -> None:
    """Numbers would be taken for words, remarks for sentences, and the last column for the tag, which is the fourth."""
    if _CONLL_U.fullmatch(raw):
        raise DataError(
            f"{where}: is CoNLL-U, ten columns with a number first; keep words and tags, as with "
            r"awk -F'\t' -v OFS='\t' '/^[0-9]+\t/ {print $2, $4} /^$/' FILE"
        )


def _jsonl(lines: Iterator[bytes], config: TaggedConfig) -> Iterator[TaggedRow]:
    def parse(value: Any) -> TaggedWords:
        words, tags = value[config.tokens_key], value[config.tags_key]
        require_unicode(*words, *tags)
        if not isinstance(words, list) or not isinstance(tags, list) or len(words) != len(tags):
            raise ValueError("give a tag for each word")
        return TaggedWords(words, tags, lines_a_word=0)

    return json_rows(lines, parse, TaggedWords([], []))


NOT_COUNTED = -1


@dataclass(frozen=True)
class TaggedBatch(Tensors):
    tokens: Int64[Tensor, "rows width"]
    mask: Bool[Tensor, "rows width"]  # True: a token, False: padding
    segments: Int64[Tensor, "rows width"]  # all 0: one text a sequence
    tags: Int64[Tensor, "rows width"]  # -1 where the loss does not count
    word_starts: Bool[Tensor, "rows width"]  # True: the first piece of a word
    source_tokens: int
    n_targets: int  # words
    examples: NDArray[np.int64]  # the index of each row's sentence

    def __len__(self) -> int:
        return len(self.tokens)

    def token_counts(self) -> dict[str, int]:
        return {"source_tokens": int(self.mask.sum()), "n_targets": int((self.tags >= 0).sum())}

    def describe(self) -> str:
        return f"{self.tokens.shape[0]} sentences of {self.tokens.shape[1]} tokens"


def fitting_words(pieces: Sequence[list[int]], max_length: int) -> Ragged:
    """The pieces of as many words as fit ``max_length`` tokens, frame included; each row is a word."""
    offsets = np.cumsum([0, *map(len, pieces)])
    n_words = int(np.searchsorted(offsets, max_length - 2, side="right")) - 1
    ids = [id for word in pieces[:n_words] for id in word]
    return Ragged(np.array(ids, np.int32), offsets[: n_words + 1])


@dataclass(frozen=True)
class TaggedExamples:
    """Word ``j`` of ``sentences[i]`` has the tag ``tags[tag_ids[i][j]]``."""

    sentences: list[Ragged]  # of words
    tag_ids: list[NDArray[np.int64]]
    tags: tuple[str, ...]
    account: ReadReport
    fingerprint: str  # SHA-256 of the sentences, the tags and the vocabulary

    def __len__(self) -> int:
        return len(self.sentences)


def prepare_tagged(
    config: TaggedConfig,
    paths: list[str],
    tokenizer: Tokenizer,
    tags: tuple[str, ...] = (),
    part: Part = "all",
) -> TaggedExamples:
    """The sentences of ``paths`` together. ``tags`` are those of the training data; none: this is it.

    ``part`` selects training or validation sentences if ``config.validation_share`` divides the paths.

    Raises ``DataError`` for a file that cannot be used, a tag that is not in ``tags``, and when nothing is left.
    """
    account, names, sentences = ReadReport(), list[list[str]](), list[Ragged]()
    for path in paths:
        file = FileReadReport(path)
        account.files.append(file)
        for chunk in chunked(read_tagged(config, path), lambda row: sum(map(len, row.value.words))):
            chunk = of_part(chunk, part, config.validation_share, lambda value: value.words, file)
            for row, pieces in encode_tagged(chunk, tokenizer, file):
                words = fitting_words(pieces, config.max_length)
                if not len(words):
                    file.drop("too_long", row.line)  # its first word alone does not fit
                    continue
                file.kept += 1
                file.truncated += len(words) < len(pieces)
                _check_tags(path, row, tags, config.validation_share if part == "held_out" else 0.0)
                sentences.append(words)
                names.append(row.value.tags[: len(words)])
    if not sentences:
        if part == "held_out":
            raise nothing_held_out(config.validation_share, paths)
        raise account.nothing_left("tagged sentence", "give words with tags, as UTF-8")
    tags = tags or tuple(sorted({tag for sentence in names for tag in sentence}))
    for words in sentences:
        account.source.count(words.values, tokenizer.unknown_id)
    places = {tag: place for place, tag in enumerate(tags)}
    tag_ids = [np.array([places[tag] for tag in sentence], np.int64) for sentence in names]
    return TaggedExamples(sentences, tag_ids, tags, account, _fingerprint(sentences, tag_ids, tags, tokenizer))


def tagged_texts(config: TaggedConfig) -> Iterator[str]:
    """The training words, a sentence at a time, for learning a vocabulary. Faulty sentences are passed over."""
    for path in config.train:
        for _, value, fault in read_tagged(config, path):
            if fault is None and not is_held_out(value.words, config.validation_share):
                yield " ".join(value.words)


def encode_words(tokenizer: Tokenizer, words: Sequence[str]) -> list[list[int]]:
    """The pieces of each word. One that normalization leaves nothing of is an unknown symbol: it has a tag too."""
    return [ids or [tokenizer.unknown_id] for ids in tokenizer.encode_batch(words)]


def tagged_batches(
    examples: TaggedExamples, tokenizer: Tokenizer, config: TaggedConfig, seed: int
) -> ResumableLoader[Indices, TaggedBatch]:
    """Every sentence once an epoch, those of similar length together."""
    frame = Frame.of(tokenizer)

    def collate(chosen: Indices, _: Draw) -> TaggedBatch:
        numbers = chosen.tolist()
        sentences, tag_ids = [examples.sentences[i] for i in numbers], [examples.tag_ids[i] for i in numbers]
        return collate_tagged(frame, sentences, tag_ids, chosen)

    lengths = np.array([len(words.values) + 2 for words in examples.sentences], np.int32)
    sampler = sequence_sampler(lengths, config.batch_tokens, config.bucket_noise)
    made_from = [examples.fingerprint, config.batch_tokens, config.bucket_noise]
    return ResumableLoader(sampler, collate, seed, json_digest(made_from))


def collate_tagged(
    frame: Frame, sentences: Sequence[Ragged], tag_ids: Sequence[NDArray[np.integer]], chosen: Indices
) -> TaggedBatch:
    """Collate ``sentences`` with the tags ``tag_ids`` of their words."""
    tokens, mask, segments = frame.rows([[words.values] for words in sentences])
    tags = np.full(tokens.shape, NOT_COUNTED, np.int64)
    for row, (words, ids) in enumerate(zip(sentences, tag_ids, strict=True)):
        tags[row, 1 + words.offsets[:-1]] = ids  # 1: [CLS]
    starts = tags != NOT_COUNTED
    return TaggedBatch(
        torch.from_numpy(tokens),
        torch.from_numpy(mask),
        torch.from_numpy(segments),
        torch.from_numpy(tags),
        torch.from_numpy(starts),
        source_tokens=int(mask.sum()),
        n_targets=int(starts.sum()),
        examples=chosen,
    )


def encode_tagged(
    chunk: list[TaggedRow], tokenizer: Tokenizer, file: FileReadReport
) -> Iterator[tuple[TaggedRow, list[list[int]]]]:
    """The rows that hold a sentence, with the pieces of their words."""
    file.read += len(chunk)
    encoded = iter(encode_words(tokenizer, [word for row in chunk for word in row.value.words]))
    for row in chunk:
        pieces = list(islice(encoded, len(row.value.words)))
        reason: Reason | None = row.fault or (None if pieces else "empty")
        if reason:
            file.drop(reason, row.line)
        else:
            yield row, pieces


def _check_tags(path: str, row: TaggedRow, tags: tuple[str, ...], share: float) -> None:
    """Raise ``DataError`` for an unknown tag; ``share`` is the validation share of a held-out sentence, else 0."""
    for number, tag in enumerate(row.value.tags):
        if tags and tag not in tags:
            line = row.line + number * row.value.lines_a_word
            raise unknown_class(f"{path}, line {line}: tag", tag, tags, share)


def _fingerprint(
    sentences: list[Ragged], tag_ids: list[NDArray[np.int64]], tags: tuple[str, ...], tokenizer: Tokenizer
) -> str:
    digest = hashlib.sha256(json.dumps([tokenizer.fingerprint, tags]).encode())
    for words, numbers in zip(sentences, tag_ids, strict=True):
        digest.update(np.array([len(words.values), len(words)], "<i8").tobytes())
        for array in (words.values, words.offsets[:-1], numbers):
            digest.update(array.astype("<i4").tobytes())
    return digest.hexdigest()
