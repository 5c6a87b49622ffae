"""The endless stream of training batches: decided by the seed, to be stopped and taken up again at any batch."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.data.alignments import token_links
from glassformer.data.pairs import Batch, Corpus, Ids, Pair, collate
from glassformer.data.sampling import Plan, Rows, pack_rows, plan_batches
from glassformer.data.token_store import joint_digest
from glassformer.errors import DataError
from glassformer.text import TokenizerPair


class Batches:
    """Batches of at most ``batch_tokens`` padded tokens a side, of every epoch, in an order drawn from (seed, epoch).

    Short sentences share a row of ``row_tokens``, longer ones have rows of a multiple of it; 0: a row a sentence.

    An epoch sees every pair of a corpus as many times as its weight says: at 1 each pair once, at 2.5 each pair twice
    and a random half of them, drawn anew each epoch, a third time.

    BPE-dropout (Provilkov et al. 2020) segments each sentence anew, drawn from (seed, epoch, pair). Batches are planned
    on the lengths without it, so with dropout one may exceed ``batch_tokens`` somewhat; nothing is cut off.

    ``epoch`` and ``position`` are those of the next batch: after the last of an epoch, the next epoch and 0.

    Raises ``DataError`` when a pair alone does not fit ``batch_tokens``.
    """

    def __init__(
        self,
        corpora: Sequence[Corpus],
        tokenizers: TokenizerPair,
        batch_tokens: int,
        seed: int,
        weights: Sequence[float] = (),
        bpe_dropout: float = 0.0,
        bucket_noise: float = 0.02,
        row_tokens: int = 0,
    ) -> None:
        self.corpora, self.tokenizers = list(corpora), tokenizers
        self.batch_tokens, self.seed = batch_tokens, seed
        self.weights = list(weights) or [1.0] * len(self.corpora)
        self.bpe_dropout, self.bucket_noise = bpe_dropout, bucket_noise
        self.row_tokens = min(row_tokens, batch_tokens)
        self._check()
        self._starts = np.cumsum([0, *map(len, self.corpora)])
        self._source_tokens = np.concatenate([corpus.source_lengths for corpus in self.corpora]) + np.int32(1)
        self._target_tokens = np.concatenate([corpus.target_lengths for corpus in self.corpora]) + np.int32(1)
        self._check_lengths()
        self.epoch, self.position = 0, 0
        self._rows, self._plan = self._plan_epoch(0)

    def __len__(self) -> int:
        """Batches in this epoch."""
        return len(self._plan)

    @property
    def padding_share(self) -> float:
        """Share of padding in the padded tokens of both sides, in this epoch."""
        real = self._source_tokens[self._rows.examples].sum() + self._target_tokens[self._rows.examples].sum()
        return 1 - int(real) / int(self._plan.padded_tokens.sum())

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the corpora and their weights. A run resumed with another one sees other data."""
        made_from = [[corpus.fingerprint, weight] for corpus, weight in zip(self.corpora, self.weights, strict=True)]
        return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()

    @property
    def content_digest(self) -> str:
        """SHA-256 over the token ids themselves."""
        return joint_digest(corpus.content_digest for corpus in self.corpora)

    def next(self) -> Batch:
        batch = self._make(self._plan.batch(self.position))
        last = self.position + 1 == len(self._plan)
        self._enter(*((self.epoch + 1, 0) if last else (self.epoch, self.position + 1)))
        return batch

    def __iter__(self) -> Iterator[Batch]:
        """Batches without end."""
        while True:
            yield self.next()

    def largest(self) -> Batch:
        """The batch of this epoch with the most padded tokens: what fits memory with it fits with the rest."""
        return self._make(self._plan.batch(int(self._plan.padded_tokens.argmax())))

    def state(self) -> dict[str, int]:
        """Where the stream is, for ``restore`` on the same corpora, batch size, weights and seed."""
        return {"epoch": self.epoch, "position": self.position}

    def restore(self, state: dict[str, Any]) -> None:
        """The next batch becomes the one that followed when ``state`` was taken."""
        self._enter(state["epoch"], state["position"])

    def _enter(self, epoch: int, position: int) -> None:
        rows, plan = (self._rows, self._plan) if epoch == self.epoch else self._plan_epoch(epoch)
        if not 0 <= position < len(plan):
            raise DataError(
                f"batch {position} of epoch {epoch} is asked for, which has {len(plan)}; "
                "the data, data.batch_tokens or the seed are not those of the stored state"
            )
        self._rows, self._plan, self.epoch, self.position = rows, plan, epoch, position

    def _plan_epoch(self, epoch: int) -> tuple[Rows, Plan]:
        generator = np.random.default_rng((self.seed, epoch))
        parts = [
            start + times(len(corpus), weight, generator)
            for start, corpus, weight in zip(self._starts, self.corpora, self.weights, strict=False)
        ]
        lengths = self._source_tokens, self._target_tokens
        rows = pack_rows(np.concatenate(parts), *lengths, self.row_tokens, generator)
        noise = 0.0 if self.row_tokens else self.bucket_noise
        return rows, plan_batches(rows.source, rows.target, self.batch_tokens, noise, generator)

    def _make(self, rows: NDArray[np.int64]) -> Batch:
        examples = [self._rows.row(row) for row in rows.tolist()]
        pairs = [[self._pair(example) for example in row.tolist()] for row in examples]
        if self.bpe_dropout and self.row_tokens:
            batch = self._pack_again(np.concatenate(examples), [pair for row in pairs for pair in row])
        else:
            batch = collate(pairs, self.tokenizers, np.concatenate(examples), self.row_tokens or 1)
        if all(corpus.links is None for corpus in self.corpora):
            return batch
        return replace(
            batch, links=token_links(batch, [self._links(i) for i in batch.examples.tolist()], self.tokenizers)
        )

    def _pack_again(self, examples: NDArray[np.int64], pairs: list[Pair]) -> Batch:
        """Dropout has made sentences longer than their rows: the same pairs in as many rows as they need now.

        All rows are as wide as the longest sentence needs, so that none of them is mostly padding.
        """
        source, target = (np.array([len(pair[side]) + 1 for pair in pairs], np.int32) for side in (0, 1))
        generator = np.random.default_rng((self.seed, self.epoch, int(examples[0])))
        width = -(-int(max(source.max(), target.max())) // self.row_tokens) * self.row_tokens
        rows = pack_rows(np.arange(len(pairs)), source, target, width, generator)
        packed = [[pairs[i] for i in rows.row(number).tolist()] for number in range(len(rows))]
        return collate(packed, self.tokenizers, examples[rows.examples], self.row_tokens)

    def _links(self, example: int) -> NDArray[np.integer]:
        corpus, index = self._place(example)
        return np.empty((0, 2), np.int64) if corpus.links is None else corpus.links[index].reshape(-1, 2)

    def _place(self, example: int) -> tuple[Corpus, int]:
        """The corpus that ``example`` is of, and its index there."""
        number = int(np.searchsorted(self._starts, example, side="right")) - 1
        return self.corpora[number], example - int(self._starts[number])

    def _pair(self, example: int) -> Pair:
        corpus, index = self._place(example)
        source, target = corpus.pair(index)
        if not self.bpe_dropout:
            return source, target
        generator = np.random.default_rng((self.seed, self.epoch, example))
        return (
            self.tokenizers.source.resample(source.tolist(), self.bpe_dropout, generator),
            self.tokenizers.target.resample(target.tolist(), self.bpe_dropout, generator),
        )

    def _check(self) -> None:
        if not self.corpora:
            raise DataError("there is no corpus to make batches of; give data.train a path")
        if len(self.weights) != len(self.corpora):
            raise DataError(
                f"data.weights has {len(self.weights)} values for {len(self.corpora)} corpora; give one each"
            )
        if not all(0 < weight < float("inf") for weight in self.weights):
            raise DataError(f"data.weights={self.weights}: every weight is a number above 0")
        if self.seed < 0:
            raise DataError(f"seed={self.seed} is negative; give 0 or more")

    def _check_lengths(self) -> None:
        longest = np.maximum(self._source_tokens, self._target_tokens)
        worst = int(longest.argmax())
        multiple = self.row_tokens or 1
        width = -(-int(longest[worst]) // multiple) * multiple
        if width > self.batch_tokens:
            raise DataError(
                f"a pair of {self._source_tokens[worst]} source and {self._target_tokens[worst]} target tokens does "
                f"not fit data.batch_tokens={self.batch_tokens}; raise it to {width} or lower data.max_length"
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


def times(n_pairs: int, weight: float, generator: np.random.Generator) -> NDArray[np.int64]:
    """Indices of the pairs an epoch sees. The odd pair is seen by chance: 0.5 of 3 pairs is 1 or 2, on average 1.5."""
    whole, part = divmod(weight, 1.0)
    times = np.tile(np.arange(n_pairs), int(whole))
    if not part:
        return times
    n_part = max(int(part * n_pairs + generator.random()), 0 if whole else 1)
    return np.concatenate([times, generator.choice(n_pairs, n_part, replace=False)])
