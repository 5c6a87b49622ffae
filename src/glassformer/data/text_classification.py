"""Texts with a label each: read and accounted for, encoded, batched by length."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from jaxtyping import Bool, Int64
from numpy.typing import NDArray
from torch import Tensor

from glassformer.data.config import LabeledConfig
from glassformer.data.held_out import Part, is_held_out, nothing_held_out, of_part, only_held_out
from glassformer.data.loader import Draw, ResumableLoader, Tensors
from glassformer.data.read_report import FileReadReport, ReadReport, Reason, TokenReadReport
from glassformer.data.readers import chunked
from glassformer.data.sampling import Indices
from glassformer.data.sequences import Frame, framed_length, sequence_sampler, truncated
from glassformer.data.text_classification_files import LabeledRow, read_labeled
from glassformer.data.token_store import json_digest
from glassformer.errors import DataError, nearest
from glassformer.text import Tokenizer


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
            for row, parts in _encoded(chunk, tokenizer, file):
                label = row.value.label
                if labels and label not in labels:
                    if part == "held_out":
                        raise only_held_out(f"{path}, line {row.line}: label", label, config.validation_share)
                    raise DataError(
                        f"{path}, line {row.line}: label {label!r} does not occur in the training data; "
                        f"{nearest(label, list(labels))}"
                    )
                cut = truncated(parts, config.max_length)
                file.truncated += framed_length(cut) < framed_length(parts)
                sequences.append([np.array(ids, np.int32) for ids in cut])
                names.append(label)
    if not sequences:
        if part == "held_out":
            raise nothing_held_out(config.validation_share, paths)
        found = "; ".join(file.describe() for file in account.files)
        raise DataError(f"no labeled text is left ({found}); give texts with labels, as UTF-8")
    labels = labels or _learned_labels(names, paths)
    count_tokens(account.source, (ids for parts in sequences for ids in parts), tokenizer)
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


def count_tokens(tokens: TokenReadReport, kept: Iterator[NDArray[np.int32]], tokenizer: Tokenizer) -> None:
    for ids in kept:
        tokens.tokens += len(ids)
        tokens.unknown += int(np.count_nonzero(ids == tokenizer.unknown_id))


def labeled_batches(
    examples: LabeledExamples, tokenizer: Tokenizer, config: LabeledConfig, seed: int
) -> ResumableLoader[Indices, LabeledBatch]:
    """Every example once an epoch, those of similar length together."""
    frame = Frame.of(tokenizer)

    def collate(chosen: Indices, _: Draw) -> LabeledBatch:
        rows = frame.rows([examples.sequences[i] for i in chosen.tolist()])
        tokens, mask, segments = map(torch.from_numpy, rows)
        label_ids = torch.from_numpy(examples.label_ids[chosen])
        return LabeledBatch(tokens, mask, segments, label_ids, int(mask.sum()), chosen)

    lengths = np.fromiter(map(framed_length, examples.sequences), np.int32, len(examples))
    sampler = sequence_sampler(lengths, config.batch_tokens, config.bucket_noise)
    made_from = [examples.fingerprint, config.batch_tokens, config.bucket_noise]
    return ResumableLoader(sampler, collate, seed, json_digest(made_from))


def _encoded(
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
    if len(labels) == 1:
        raise DataError(f"{', '.join(paths)}: {labels[0]!r} is the only label; give examples of at least two")
    return labels


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
