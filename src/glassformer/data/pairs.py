"""Pairs of token ids: a corpus of them on disk, and a batch of them as tensors.

The rows of a batch hold one or several sentences and are padded to a rectangle on each side.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Int64
from numpy.typing import NDArray
from torch import Tensor

from glassformer.data.loader import Tensors
from glassformer.data.read_report import ReadReport
from glassformer.data.token_store import Ids, Ragged
from glassformer.text import TokenizerPair

Pair = tuple[Ids, Ids]


class Corpus:
    """Pairs of token ids without special tokens, memory-mapped, so that a corpus may be larger than memory.

    ``fingerprint`` (SHA-256) covers the content of the files, the vocabularies and the filters: equal fingerprints
    mean equal examples in equal order. ``links``, if the words are aligned, holds the source and the target word of
    every link of a pair, one after the other. ``content_digest`` (SHA-256) covers the token ids themselves.
    """

    def __init__(
        self,
        source: Ragged,
        target: Ragged,
        account: ReadReport,
        fingerprint: str,
        links: Ragged | None = None,
        content_digest: str = "",
    ) -> None:
        self.source, self.target = source, target
        self.links = links
        self.account = account
        self.fingerprint = fingerprint
        self.content_digest = content_digest

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


@dataclass(frozen=True)
class TokenLinks(Tensors):
    """Word alignments of a batch between tokens: each link joins all pieces of two words.

    The ``shares`` of a target token sum to 1, so their total is the number of linked target tokens.
    """

    places: Int64[Tensor, "3 links"]  # row, column in ``Batch.labels``, column in ``Batch.source``; none is twice
    shares: Float32[Tensor, " links"]


@dataclass(frozen=True)
class Batch(Tensors):
    """Inputs and labels of the model; ``target`` is shifted right by the start token (section 3.1).

    A row may hold several sentences one after the other. ``source_sentences`` and ``target_sentences`` number them
    within their row, from 1; 0 is padding. Attention stays within a number, and positions count from its first token.
    """

    source: Int64[Tensor, "rows source"]  # tokens, end
    target: Int64[Tensor, "rows target"]  # start, tokens
    labels: Int64[Tensor, "rows target"]  # tokens, end
    source_sentences: Int64[Tensor, "rows source"]
    target_sentences: Int64[Tensor, "rows target"]
    source_tokens: int  # without padding
    n_targets: int  # predicted tokens, without padding
    examples: NDArray[np.int64]  # the index of each pair in the corpora laid end to end, row by row
    links: TokenLinks | None = None  # where words are aligned

    def __len__(self) -> int:
        """Pairs of sentences."""
        return len(self.examples)

    @property
    def padded_tokens(self) -> int:
        """Positions the encoder and the decoder compute, padding included."""
        return self.source.numel() + self.target.numel()

    def pairs(self) -> list[tuple[list[int], list[int]]]:
        """The ids of every pair, end included, in the order of ``examples``."""
        sides = (self.source, self.source_sentences), (self.labels, self.target_sentences)
        sources, targets = (
            [
                ids[numbers == n].tolist()
                for ids, numbers in zip(*side, strict=True)
                for n in range(1, numbers.max() + 1)
            ]
            for side in sides
        )
        return list(zip(sources, targets, strict=True))

    def describe(self) -> str:
        return f"{list(self.source.shape)} source and {list(self.target.shape)} target tokens"


def collate(
    rows: Sequence[Sequence[Pair]],
    tokenizers: TokenizerPair,
    examples: NDArray[np.int64] | None = None,
    multiple: int = 1,
) -> Batch:
    """Collate rows of pairs, as ids without special tokens, into one batch.

    Each side is padded to its longest row, rounded up to a ``multiple``: on a CPU a matrix product of a shape not seen
    lately costs half a millisecond more, so shapes that recur are faster than the fewest positions.
    """
    from_vocabulary, to_vocabulary = tokenizers.source, tokenizers.target
    start, end = [to_vocabulary.start_id], [to_vocabulary.end_id]
    sources = [[source for source, _ in row] for row in rows]
    targets = [[target for _, target in row] for row in rows]
    source = _rectangle(sources, [], [from_vocabulary.end_id], from_vocabulary.pad_id, multiple)
    target = _rectangle(targets, start, [], to_vocabulary.pad_id, multiple)
    labels = _rectangle(targets, [], end, to_vocabulary.pad_id, multiple)
    source_sentences, target_sentences = _numbers(sources, source.shape[1]), _numbers(targets, target.shape[1])
    n_pairs = sum(map(len, rows))
    return Batch(
        torch.from_numpy(source),
        torch.from_numpy(target),
        torch.from_numpy(labels),
        torch.from_numpy(source_sentences),
        torch.from_numpy(target_sentences),
        source_tokens=int(np.count_nonzero(source_sentences)),
        n_targets=int(np.count_nonzero(target_sentences)),
        examples=np.arange(n_pairs) if examples is None else examples,
    )


def _rectangle(
    rows: list[list[Ids]], before: list[int], after: list[int], pad_id: int, multiple: int
) -> NDArray[np.int64]:
    """Each row's sentences, each between ``before`` and ``after``, and ``pad_id`` up to the width of all."""
    flat = [
        np.concatenate([part for ids in row for part in (before, ids, after)], dtype=np.int64, casting="unsafe")
        for row in rows
    ]
    padded = np.full((len(rows), _round_up(max(map(len, flat)), multiple)), pad_id, np.int64)
    for line, ids in zip(padded, flat, strict=True):
        line[: len(ids)] = ids
    return padded


def _numbers(rows: list[list[Ids]], width: int) -> NDArray[np.int64]:
    numbers = np.zeros((len(rows), width), np.int64)
    for line, row in zip(numbers, rows, strict=True):
        lengths = [len(ids) + 1 for ids in row]
        line[: sum(lengths)] = np.repeat(np.arange(1, len(row) + 1), lengths)
    return numbers


def _round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple
