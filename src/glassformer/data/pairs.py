"""Batches of sentence pairs: rows of one or several sentences, padded to a rectangle on each side."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Int64
from numpy.typing import NDArray
from torch import Tensor

from glassformer.data.alignments import TokenLinks, token_links
from glassformer.data.corpus import Corpus
from glassformer.data.loader import Draw, ResumableLoader, Tensors
from glassformer.data.sampling import Mixture, in_rows, pack_rows
from glassformer.data.token_store import Ids, joint_digest, json_digest
from glassformer.errors import DataError
from glassformer.text import TokenizerPair

Pair = tuple[Ids, Ids]


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

    def select(self, rows: Sequence[int]) -> "Batch":
        """The batch of some rows only, each with all its sentences."""
        index = list(rows)
        ends = self.source_sentences.amax(1).cumsum(0).tolist()  # examples up to the end of each row
        examples = [self.examples[ends[row - 1] if row else 0 : ends[row]] for row in index]
        source, target = self.source_sentences[index], self.target_sentences[index]
        return Batch(
            self.source[index],
            self.target[index],
            self.labels[index],
            source,
            target,
            source_tokens=int(source.count_nonzero()),
            n_targets=int(target.count_nonzero()),
            examples=np.concatenate(examples),
            links=None if self.links is None else self.links.select(index),
        )

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
    first, last = np.array(before, np.int64), np.array(after, np.int64)  # converted once, not for every sentence
    flat = [
        np.concatenate([part for ids in row for part in (first, ids, last)], dtype=np.int64, casting="unsafe")
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


def pair_batches(
    corpora: Sequence[Corpus],
    tokenizers: TokenizerPair,
    batch_tokens: int,
    seed: int,
    weights: Sequence[float] = (),
    bpe_dropout: float = 0.0,
    bucket_noise: float = 0.02,
    row_tokens: int = 0,
) -> ResumableLoader[list[NDArray[np.integer]], Batch]:
    """Batches of at most ``batch_tokens`` padded tokens a side, of every epoch, in an order drawn from (seed, epoch).

    Short sentences share a row of ``row_tokens``, longer ones have rows of a multiple of it; 0: a row a sentence.
    An epoch sees every pair of a corpus as many times as its weight says (``Mixture``).

    Batches are planned on the lengths without BPE-dropout, so with dropout one may exceed ``batch_tokens`` somewhat;
    nothing is cut off. Raises ``DataError`` when a pair alone does not fit ``batch_tokens``.
    """
    mixture, row_tokens = Mixture.of([len(corpus) for corpus in corpora], weights), min(row_tokens, batch_tokens)
    source = np.concatenate([corpus.source_lengths for corpus in corpora]) + np.int32(1)
    target = np.concatenate([corpus.target_lengths for corpus in corpora]) + np.int32(1)
    check_pair_lengths(source, target, batch_tokens, row_tokens or 1)
    sampler = partial(in_rows, (source, target), mixture, row_tokens, batch_tokens, bucket_noise)
    made_from = [[corpus.fingerprint, weight] for corpus, weight in zip(corpora, mixture.weights, strict=True)]
    digest = joint_digest(corpus.content_digest for corpus in corpora)
    collate_pairs = PairCollator(corpora, tokenizers, mixture, bpe_dropout, row_tokens)
    return ResumableLoader(sampler, collate_pairs, seed, json_digest(made_from), digest)


@dataclass(frozen=True)
class PairCollator:
    """Collate pairs of the corpora into a batch, with word links if there are any.

    BPE-dropout (Provilkov et al. 2020) segments each sentence anew, drawn from (seed, epoch, pair).
    """

    corpora: Sequence[Corpus]
    tokenizers: TokenizerPair
    mixture: Mixture
    bpe_dropout: float
    row_tokens: int

    def __call__(self, rows: list[NDArray[np.integer]], draw: Draw) -> Batch:
        examples = np.concatenate(rows)
        pairs = [[self._pair(example, draw) for example in row.tolist()] for row in rows]
        if self.bpe_dropout and self.row_tokens:
            batch = self._pack_again(examples, [pair for row in pairs for pair in row], draw)
        else:
            batch = collate(pairs, self.tokenizers, examples, self.row_tokens or 1)
        if all(corpus.links is None for corpus in self.corpora):
            return batch
        links = [self._links(example) for example in batch.examples.tolist()]
        source, target = (batch.source, batch.source_sentences), (batch.labels, batch.target_sentences)
        return replace(batch, links=token_links(source, target, links, self.tokenizers))

    def _pack_again(self, examples: NDArray[np.integer], pairs: list[Pair], draw: Draw) -> Batch:
        """Pack the pairs into as many rows as they need after dropout, which makes them longer than their rows.

        All rows are as wide as the longest sentence needs, so that none of them is mostly padding.
        """
        source, target = (np.array([len(pair[side]) + 1 for pair in pairs], np.int32) for side in (0, 1))
        generator = draw.generator_of(int(examples[0]))
        width = -(-int(max(source.max(), target.max())) // self.row_tokens) * self.row_tokens
        rows = pack_rows(np.arange(len(pairs)), source, target, width, generator).examples
        packed = [[pairs[i] for i in rows[number].tolist()] for number in range(len(rows))]
        return collate(packed, self.tokenizers, examples[rows.values], self.row_tokens)

    def _links(self, example: int) -> NDArray[np.integer]:
        number, index = self.mixture.locate(example)
        links = self.corpora[number].links
        return np.empty((0, 2), np.int64) if links is None else links[index].reshape(-1, 2)

    def _pair(self, example: int, draw: Draw) -> Pair:
        number, index = self.mixture.locate(example)
        source, target = self.corpora[number].pair(index)
        if not self.bpe_dropout:
            return source, target
        generator = draw.generator_of(example)
        return (
            self.tokenizers.source.resample(source.tolist(), self.bpe_dropout, generator),
            self.tokenizers.target.resample(target.tolist(), self.bpe_dropout, generator),
        )


def check_pair_lengths(source: NDArray[np.int32], target: NDArray[np.int32], batch_tokens: int, multiple: int) -> None:
    """Raise ``DataError`` if a pair alone, rounded up to a ``multiple``, does not fit ``batch_tokens``."""
    longest = np.maximum(source, target)
    worst = int(longest.argmax())
    width = -(-int(longest[worst]) // multiple) * multiple
    if width > batch_tokens:
        raise DataError(
            f"a pair of {source[worst]} source and {target[worst]} target tokens does "
            f"not fit data.batch_tokens={batch_tokens}; raise it to {width} or lower data.max_length"
        )


def ordered_batches(
    sources: Sequence[Ids], targets: Sequence[Ids], tokenizers: TokenizerPair, batch_tokens: int
) -> list[Batch]:
    """Every given pair once, in batches by length, the same each time: for validation.

    ``Batch.examples`` says which pair each row is. A pair longer than ``batch_tokens`` has a batch of its own.
    """
    lengths = [np.fromiter((len(ids) + 1 for ids in side), np.int32, len(side)) for side in (sources, targets)]
    order = np.lexsort(lengths)
    batches, rows, longest = [], list[int](), 0
    for index in order.tolist():
        longest = max(longest, lengths[0][index], lengths[1][index])
        if rows and longest * (len(rows) + 1) > batch_tokens:
            batches.append(_select(sources, targets, rows, tokenizers))
            rows, longest = [], max(lengths[0][index], lengths[1][index])
        rows.append(index)
    return [*batches, _select(sources, targets, rows, tokenizers)] if rows else batches


def _select(sources: Sequence[Ids], targets: Sequence[Ids], rows: list[int], tokenizers: TokenizerPair) -> Batch:
    return collate([[(sources[row], targets[row])] for row in rows], tokenizers, np.array(rows))
