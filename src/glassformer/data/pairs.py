"""Batches of sentence pairs: rows of one or several sentences, padded to a rectangle on each side."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Int64
from numpy.typing import NDArray
from torch import Tensor

from glassformer.data.alignments import TokenLinks, token_links
from glassformer.data.corpus import Corpus
from glassformer.data.loader import Draw, ResumableLoader, Tensors
from glassformer.data.sampling import Mixture, in_rows, pack_rows
from glassformer.data.token_store import Ids, Ragged, joint_digest, json_digest, offsets_of, ranges
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
    source, target = (Ragged.of([pair[side] for row in rows for pair in row]) for side in (0, 1))
    sizes = np.array([len(row) for row in rows], np.int64)
    return _pack(source, target, sizes, tokenizers, np.arange(len(source)) if examples is None else examples, multiple)


def _pack(
    source: Ragged,
    target: Ragged,
    sizes: NDArray[np.int64],
    tokenizers: TokenizerPair,
    examples: NDArray[np.int64],
    multiple: int,
) -> Batch:
    """The batch of sentences that lie end to end, ``sizes[i]`` of them in row i.

    Whole arrays at a time: a loop over 2,000 sentences takes 17 ms, for which a GPU waits.
    """
    sources, targets = (_Rectangle.of(side, sizes, multiple) for side in (source, target))
    labels = _with_ends(target, tokenizers.target.end_id)
    inputs = np.roll(labels, 1)
    inputs[targets.begins] = tokenizers.target.start_id
    pad_id = tokenizers.target.pad_id
    return Batch(
        sources.filled(_with_ends(source, tokenizers.source.end_id), tokenizers.source.pad_id),
        targets.filled(inputs, pad_id),
        targets.filled(labels, pad_id),
        sources.filled(sources.numbers, 0),
        targets.filled(targets.numbers, 0),
        source_tokens=len(sources.places),
        n_targets=len(targets.places),
        examples=examples,
    )


class _Rectangle(NamedTuple):
    """Places of tokens in rows of several sentences, each sentence with one special token."""

    shape: tuple[int, int]
    begins: NDArray[np.int64]  # of each sentence among all tokens
    places: NDArray[np.int64]  # of each token in the flattened rectangle
    numbers: NDArray[np.int64]  # for each token, that of its sentence in the row

    @classmethod
    def of(cls, sentences: Ragged, sizes: NDArray[np.int64], multiple: int) -> Self:
        lengths = sentences.lengths + 1
        bounds = offsets_of(lengths)
        widths = np.diff(bounds[offsets_of(sizes)])
        shape = len(sizes), -(-int(widths.max()) // multiple) * multiple
        numbers = np.repeat(ranges(np.ones_like(sizes), sizes), lengths)
        return cls(shape, bounds[:-1], ranges(np.arange(shape[0]) * shape[1], widths), numbers)

    def filled(self, values: NDArray[np.int64], rest: int) -> Tensor:
        """A rectangle of the ``values`` of all tokens, with ``rest`` as padding."""
        rectangle = np.full(self.shape, rest, np.int64)
        rectangle.reshape(-1)[self.places] = values
        return torch.from_numpy(rectangle)


def _with_ends(sentences: Ragged, end_id: int) -> NDArray[np.int64]:
    """All tokens, with ``end_id`` behind each sentence."""
    tokens = np.full(len(sentences.values) + len(sentences), end_id, np.int64)
    own = np.ones(len(tokens), bool)
    own[offsets_of(sentences.lengths + 1)[1:] - 1] = False
    tokens[own] = sentences.values
    return tokens


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
        source, target = self._sides(examples)
        if self.bpe_dropout:
            source, target = self._resampled(source, target, examples, draw)
        if self.bpe_dropout and self.row_tokens:
            batch = self._pack_again(examples, source, target, draw)
        else:
            sizes = np.fromiter(map(len, rows), np.int64, len(rows))
            batch = _pack(source, target, sizes, self.tokenizers, examples, self.row_tokens or 1)
        if all(corpus.links is None for corpus in self.corpora):
            return batch
        numbers, indices = self.mixture.locate_all(batch.examples)
        links = [self._links(*place) for place in zip(numbers.tolist(), indices.tolist(), strict=True)]
        sides = (batch.source, batch.source_sentences), (batch.labels, batch.target_sentences)
        return replace(batch, links=token_links(*sides, links, self.tokenizers))

    def _pack_again(self, examples: NDArray[np.integer], source: Ragged, target: Ragged, draw: Draw) -> Batch:
        """Pack the pairs into as many rows as they need after dropout, which makes them longer than their rows.

        All rows are as wide as the longest sentence needs, so that none of them is mostly padding.
        """
        lengths = source.lengths + np.int32(1), target.lengths + np.int32(1)
        generator = draw.generator_of(int(examples[0]))
        width = -(-int(np.maximum(*lengths).max()) // self.row_tokens) * self.row_tokens
        rows = pack_rows(np.arange(len(source)), *lengths, width, generator).examples
        order, sizes = rows.values, np.diff(rows.offsets)
        sides = source.take(order), target.take(order)
        return _pack(*sides, sizes, self.tokenizers, examples[order], self.row_tokens)

    def _links(self, number: int, index: int) -> NDArray[np.integer]:
        links = self.corpora[number].links
        return np.empty((0, 2), np.int64) if links is None else links[index].reshape(-1, 2)

    def _sides(self, examples: NDArray[np.integer]) -> tuple[Ragged, Ragged]:
        """Source and target of ``examples``, in their order."""
        numbers, indices = self.mixture.locate_all(examples)
        if len(self.corpora) == 1:
            return self.corpora[0].source.take(indices), self.corpora[0].target.take(indices)
        places = np.empty(len(examples), np.int64)
        places[np.argsort(numbers, kind="stable")] = np.arange(len(examples))
        chosen = [indices[numbers == number] for number in range(len(self.corpora))]
        source = [corpus.source.take(rows) for corpus, rows in zip(self.corpora, chosen, strict=True)]
        target = [corpus.target.take(rows) for corpus, rows in zip(self.corpora, chosen, strict=True)]
        return Ragged.joined(source).take(places), Ragged.joined(target).take(places)

    def _resampled(
        self, source: Ragged, target: Ragged, examples: NDArray[np.integer], draw: Draw
    ) -> tuple[Ragged, Ragged]:
        """Both sides segmented anew."""
        pairs = list[Pair]()
        for place, example in enumerate(examples.tolist()):
            generator = draw.generator_of(example)
            ids = self.tokenizers.source.resample(source[place].tolist(), self.bpe_dropout, generator)
            pairs.append((ids, self.tokenizers.target.resample(target[place].tolist(), self.bpe_dropout, generator)))
        return Ragged.of([pair[0] for pair in pairs]), Ragged.of([pair[1] for pair in pairs])


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
