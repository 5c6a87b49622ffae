"""Texts with a label each: rows of CSV, TSV and JSONL, encoded examples, and batches by length."""

import csv
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int64
from numpy.typing import NDArray
from torch import Tensor

from glassformer.data.config import LabeledConfig
from glassformer.data.held_out import Part, is_held_out, nothing_held_out, of_part, unknown_class
from glassformer.data.input_errors import invalid_csv
from glassformer.data.loader import Draw, ResumableLoader, Tensors
from glassformer.data.parallel_text import NO_TAB
from glassformer.data.read_report import FileReadReport, ReadReport, Reason
from glassformer.data.readers import (
    JSON_ROWS,
    Row,
    chunked,
    is_unicode,
    json_row,
    parsed_row,
    raw_lines,
    regular,
    require_unicode,
    uncompressed,
)
from glassformer.data.sampling import Indices
from glassformer.data.sequences import Frame, Parts, framed_length, sequence_sampler, truncated
from glassformer.data.token_store import json_digest
from glassformer.errors import DataError, nearest
from glassformer.text import Tokenizer

Cells = tuple[int, list[str]]  # its first line, 1-based, and its fields


class LabeledText(NamedTuple):
    texts: tuple[str, ...]  # the text, and its pair where there is one
    label: str


LabeledRow = Row[LabeledText]
BLANK = LabeledText(("",), "")


def read_labeled(config: LabeledConfig, path: str) -> Iterator[LabeledRow]:
    """Every row of ``path`` in order, those that hold no example included. A line is the first of its row.

    Raises ``DataError`` when the file cannot be read, is no valid CSV, or has not the columns.
    """
    plain = uncompressed(path)
    if plain.endswith(JSON_ROWS):
        return _from_json_lines(config, path)
    if plain.endswith(".csv"):
        return _from_table(config, path, _csv_rows(config, path))
    if plain.endswith(".tsv"):
        return _from_table(config, path, _tsv_rows(config, path))
    raise DataError(f"{path}: labeled text is a .csv, a .tsv or a .jsonl, each also .gz; rename or convert the file")


def _columns(config: LabeledConfig) -> list[str]:
    texts = [config.text_column, *([config.pair_column] if config.pair_column else [])]
    return [*texts, config.label_column]


def _lines(config: LabeledConfig, path: str) -> Iterator[str]:
    """Bytes that are not UTF-8 become lone surrogates, so that they cost the record they are in and no other."""
    for raw in raw_lines(regular(Path(path)), ends=True, limit=config.max_line_bytes):
        yield raw.decode(errors="surrogateescape")


def _csv_rows(config: LabeledConfig, path: str) -> Iterator[Cells]:
    reader = csv.reader(_lines(config, path), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise invalid_csv(path, line, error) from None
        yield line, fields


def _tsv_rows(config: LabeledConfig, path: str) -> Iterator[Cells]:
    for line, text in enumerate(_lines(config, path), start=1):
        text = text.removesuffix("\n")
        yield line, text.split("\t") if text else []


def _from_table(config: LabeledConfig, path: str, rows: Iterator[Cells]) -> Iterator[LabeledRow]:
    _, header = next(rows, (1, []))
    places = [_place(path, header, name) for name in _columns(config)]
    for line, fields in rows:
        if not fields:
            yield Row(line, BLANK)
        elif len(fields) != len(header):
            yield Row(line, BLANK, "malformed")
        else:
            yield parsed_row(line, [fields[place] for place in places], _labeled, BLANK)


def _place(path: str, header: list[str], name: str) -> int:
    if not header:
        raise DataError(f"{path}: is empty; its first line names the columns")
    if not is_unicode("".join(header)):
        raise DataError(f"{path}, line 1: the names of the columns are not valid UTF-8; convert the file to it")
    if header.count(name) > 1:
        raise DataError(f"{path}, line 1: {header.count(name)} columns are named {name!r}; rename all but one")
    if name not in header:
        if len(header) == 1 and uncompressed(path).endswith(".tsv") and any(sign in header[0] for sign in ",; "):
            raise DataError(f"{path}, line 1: no column {name!r}: {header[0]!r} {NO_TAB}; put tabs between the columns")
        if len(header) == 1:
            raise DataError(
                f"no column {name!r}, the only one is {header[0]!r}",
                where=f"{path}, line 1",
                setting="data.text_column",
                advice="set data.text_column and data.label_column",
            )
        raise DataError(
            f"{path}, line 1: no column {name!r}, the columns are {', '.join(header)}; {nearest(name, header)}"
        )
    return header.index(name)


def _from_json_lines(config: LabeledConfig, path: str) -> Iterator[LabeledRow]:
    def parse(value: Any) -> LabeledText:
        *texts, label = [value[name] for name in _columns(config)]
        return _labeled([*texts, str(label) if isinstance(label, int) and not isinstance(label, bool) else label])

    for number, text in enumerate(_lines(config, path), start=1):
        yield json_row(number, text, parse, BLANK)


def _labeled(fields: list[str]) -> LabeledText:
    require_unicode(*fields)
    *texts, label = fields
    if not label.strip():
        raise ValueError("the label is blank")
    return LabeledText(tuple(texts), label.strip())


@dataclass(frozen=True)
class LabeledBatch(Tensors):
    tokens: Int64[Tensor, "rows width"]
    mask: Bool[Tensor, "rows width"]  # True: a token, False: padding
    segments: Int64[Tensor, "rows width"]  # 0: the text, 1: its pair
    labels: Int64[Tensor, " rows"]
    source_tokens: int
    examples: NDArray[np.int64]  # the index of each row's example

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def n_targets(self) -> int:
        """Predictions that the loss is averaged over: one an example."""
        return len(self.labels)

    def token_counts(self) -> dict[str, int]:
        return {"source_tokens": int(self.mask.sum())}

    def describe(self) -> str:
        return f"{self.tokens.shape[0]} texts of {self.tokens.shape[1]} tokens"


@dataclass(frozen=True)
class LabeledExamples:
    """``sequences[i]``, a text or a text and its pair as ids, is labeled ``labels[label_ids[i]]``."""

    sequences: list[list[NDArray[np.int32]]]
    label_ids: NDArray[np.int64]
    labels: tuple[str, ...]
    account: ReadReport
    fingerprint: str  # SHA-256 of the sequences, the labels and the vocabulary

    def __len__(self) -> int:
        return len(self.sequences)


def prepare_labeled(
    config: LabeledConfig,
    paths: list[str],
    tokenizer: Tokenizer,
    labels: tuple[str, ...] = (),
    part: Part = "all",
) -> LabeledExamples:
    """The examples of ``paths`` together. ``labels`` are those of the training data; none: this is it.

    ``part`` selects training or validation examples if ``config.validation_share`` divides the paths.

    Raises ``DataError`` for a file that cannot be used, a label that is not in ``labels``, and when nothing is left.
    """
    account = ReadReport()
    sequences, names = list[list[NDArray[np.int32]]](), list[str]()
    for path in paths:
        file = FileReadReport(path)
        account.files.append(file)
        for chunk in chunked(read_labeled(config, path), lambda row: sum(map(len, row.value.texts))):
            chunk = of_part(chunk, part, config.validation_share, lambda value: value.texts, file)
            for row, parts in encode_labeled(chunk, tokenizer, file):
                label = row.value.label
                if labels and label not in labels:
                    share = config.validation_share if part == "held_out" else 0.0
                    raise unknown_class(f"{path}, line {row.line}: label", label, labels, share)
                cut = truncated(parts, config.max_length)
                file.truncated += framed_length(cut) < framed_length(parts)
                sequences.append([np.array(ids, np.int32) for ids in cut])
                names.append(label)
    if not sequences:
        if part == "held_out":
            raise nothing_held_out(config.validation_share, paths)
        raise account.nothing_left("labeled text", "give texts with labels, as UTF-8")
    labels = labels or _learned_labels(names, paths)
    for ids in chain.from_iterable(sequences):
        account.source.count(ids, tokenizer.unknown_id)
    places = {label: place for place, label in enumerate(labels)}
    label_ids = np.array([places[name] for name in names], np.int64)
    return LabeledExamples(sequences, label_ids, labels, account, _fingerprint(sequences, label_ids, labels, tokenizer))


def labeled_texts(config: LabeledConfig) -> Iterator[str]:
    """The training texts, for learning a vocabulary. Rows that hold no example are passed over."""
    for path in config.train:
        for _, value, fault in read_labeled(config, path):
            if fault is None and not is_held_out(value.texts, config.validation_share):
                yield from value.texts


def encode_parts(tokenizer: Tokenizer, texts: list[tuple[str, ...]]) -> list[list[list[int]]]:
    """The ids of each text and its pair, not yet framed, nor truncated."""
    encoded = iter(tokenizer.encode_batch([text for parts in texts for text in parts]))
    return [list(islice(encoded, len(parts))) for parts in texts]


def labeled_batches(
    examples: LabeledExamples, tokenizer: Tokenizer, config: LabeledConfig, seed: int
) -> ResumableLoader[Indices, LabeledBatch]:
    """Every example once an epoch, those of similar length together."""
    frame = Frame.of(tokenizer)

    def collate(chosen: Indices, _: Draw) -> LabeledBatch:
        return collate_labeled(frame, [examples.sequences[i] for i in chosen.tolist()], examples.label_ids, chosen)

    lengths = np.fromiter(map(framed_length, examples.sequences), np.int32, len(examples))
    sampler = sequence_sampler(lengths, config.batch_tokens, config.bucket_noise)
    made_from = [examples.fingerprint, config.batch_tokens, config.bucket_noise]
    return ResumableLoader(sampler, collate, seed, json_digest(made_from))


def collate_labeled(
    frame: Frame, sequences: Sequence[Parts], label_ids: NDArray[np.int64], chosen: Indices
) -> LabeledBatch:
    """Collate ``sequences`` with the labels ``label_ids[chosen]``."""
    tokens, mask, segments = map(torch.from_numpy, frame.rows(sequences))
    return LabeledBatch(tokens, mask, segments, torch.from_numpy(label_ids[chosen]), int(mask.sum()), chosen)


def encode_labeled(
    chunk: list[LabeledRow], tokenizer: Tokenizer, file: FileReadReport
) -> Iterator[tuple[LabeledRow, list[list[int]]]]:
    """The rows that are kept, with their ids. Text may have no tokens although it is not blank."""
    file.read += len(chunk)
    for row, parts in zip(chunk, encode_parts(tokenizer, [row.value.texts for row in chunk]), strict=True):
        empty = not all(parts) or not all(text.strip() for text in row.value.texts)
        reason: Reason | None = row.fault or ("empty" if empty else None)
        if reason:
            file.drop(reason, row.line)
        else:
            file.kept += 1
            yield row, parts


def _learned_labels(names: list[str], paths: list[str]) -> tuple[str, ...]:
    labels = tuple(sorted(set(names)))
    check_labels(labels, paths)
    return labels


def check_labels(labels: Sequence[str], paths: list[str]) -> None:
    """Raise ``DataError`` if there is only one label."""
    if len(labels) == 1:
        raise DataError(f"{', '.join(paths)}: {labels[0]!r} is the only label; give examples of at least two")


def _fingerprint(
    sequences: list[list[NDArray[np.int32]]],
    label_ids: NDArray[np.int64],
    labels: tuple[str, ...],
    tokenizer: Tokenizer,
) -> str:
    digest = hashlib.sha256(json.dumps([tokenizer.fingerprint, labels]).encode())
    for parts, label in zip(sequences, label_ids.tolist(), strict=True):
        digest.update(np.array([label, *map(len, parts)], "<i8").tobytes())
        for ids in parts:
            digest.update(ids.astype("<i4").tobytes())
    return digest.hexdigest()
