"""Batches of each task from shards: the samplers and collation of training from files, over a window at a time."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.data.config import DataConfig, LabeledConfig, MaskedConfig, StreamConfig, TaggedConfig
from glassformer.data.corpus import Corpus
from glassformer.data.loader import Draw
from glassformer.data.masking import MaskedBatch, Masking, collate_masked
from glassformer.data.pairs import Batch, PairCollator, check_pair_lengths
from glassformer.data.sampling import Indices, Mixture, Plan, in_rows
from glassformer.data.sequences import Frame, sequence_sampler
from glassformer.data.shards.epoch import EpochOrder
from glassformer.data.shards.samples import Samples, decisive_settings
from glassformer.data.shards.shard_index import ShardIndex
from glassformer.data.shards.shard_loader import SampleWindow, ShardLoader
from glassformer.data.shards.shard_set import ShardSet
from glassformer.data.text_classification import LabeledBatch, collate_labeled
from glassformer.data.token_classification import TaggedBatch, collate_tagged
from glassformer.data.token_store import Ragged, json_digest
from glassformer.data.windows import WindowBatch, collate_windows
from glassformer.errors import DataError
from glassformer.text import Tokenizer, TokenizerPair

BATCHES_READ = 64
"""Batches of a stream that are read together: each shard is visited once for all of them."""
NOT_COMPARED = ("max_unknown_rate", "bpe_dropout")
"""Settings of ``[text]`` that do not change the tokenizer."""


def open_shards(task: str, samples: type[Samples[Any]], data: Any) -> ShardSet:
    """The shards of ``data.shards``. Raises ``DataError`` if they are of another task or of other settings."""
    folder = Path(data.shards)
    index = ShardIndex.read(folder)
    if index.task != task:
        raise DataError(f"{folder}: holds samples of task={index.task}, not of {task}; name shards of this task")
    for name, now in decisive_settings(samples.decisive, data).items():
        _compare(folder, f"data.{name}", index.settings.get(name, now), now)
    return ShardSet(folder, index, data.on_corrupt, samples.divisible)


def check_tokenizer(shards: ShardSet, tokenizers: TokenizerPair, text: dict[str, Any] | None) -> None:
    """Raise ``DataError`` if the shards are of another tokenizer, or of one with other settings than ``text``."""
    if shards.index.tokenizer != tokenizers.fingerprint:
        raise DataError(
            f"{shards.folder}: was prepared with another tokenizer ({shards.index.tokenizer[:12]}…) than that of this "
            f"run ({tokenizers.fingerprint[:12]}…); prepare the shards again with the run as train.start_from"
        )
    for name, now in (text or {}).items():
        if name not in NOT_COMPARED:
            _compare(shards.folder, f"text.{name}", shards.index.text.get(name, now), now)


def _compare(folder: Path, name: str, before: Any, now: Any) -> None:
    if before != now:
        raise DataError(
            f"{folder}: was prepared with {name}={before!r}, and the configuration has {now!r}; "
            "set it back, or prepare the shards again"
        )


def pair_shards(
    shards: ShardSet, tokenizers: TokenizerPair, data: DataConfig, seed: int, bpe_dropout: float, row_tokens: int
) -> ShardLoader[Batch]:
    """Batches of sentence pairs, packed into rows within a window."""
    row_tokens = min(row_tokens, data.batch_tokens)

    def read(samples: Indices) -> SampleWindow[Batch]:
        (source, target), present = shards.columns(samples)
        corpus = Corpus(source, target, shards.index.account, "")
        lengths = source.lengths + np.int32(1), target.lengths + np.int32(1)
        mixture = Mixture.of([len(source)])
        if len(source):
            check_pair_lengths(*lengths, data.batch_tokens, row_tokens or 1)
        sampler = partial(in_rows, lengths, mixture, row_tokens, data.batch_tokens, data.bucket_noise)
        collator = PairCollator([corpus], tokenizers, mixture, bpe_dropout, row_tokens)

        def collate(rows: list[NDArray[np.integer]], draw: Draw) -> Batch:
            batch = collator(rows, draw)
            return replace(batch, examples=samples[present][batch.examples])

        return SampleWindow(samples[present], sampler, collate, lambda rows: sum(map(len, rows)))

    decides = [bpe_dropout, data.bucket_noise, row_tokens, data.batch_tokens]
    return _loader(shards, data, data.weights, seed, read, decides)


def stream_shards(shards: ShardSet, tokenizer: Tokenizer, data: StreamConfig, seed: int) -> ShardLoader[WindowBatch]:
    """Windows of ``data.context`` tokens, cut at another offset each epoch; many batches are read at once."""
    index, end_id = shards.index, tokenizer.end_id if data.within_documents else None
    sizes, weights = [one.values for one in index.sets], _weights(index, data.weights)
    for one in index.sets:
        if one.values < 2:
            raise DataError(
                f"{one.path}: has no text to predict; prepare the shards again with text in it, or without this path "
                "and its weight"
            )
        if one.values <= data.context:
            raise DataError(
                f"{one.path}: {one.values:,} tokens are less than one window of data.context={data.context} "
                f"and the token after it; lower data.context to {one.values - 1} or prepare more text"
            )

    def read(begins: Indices) -> SampleWindow[WindowBatch]:
        rows, present = shards.windows(begins, data.context + 1)
        n_batches = -(-len(rows) // data.rows)
        plan = Plan.unpadded(np.arange(len(rows)), np.arange(n_batches + 1) * len(rows) // max(1, n_batches))
        return SampleWindow(
            begins[present], lambda _: plan, lambda chosen, _: collate_windows(rows[chosen], end_id), len
        )

    def order(epoch: int) -> EpochOrder:
        return EpochOrder.of_stream(sizes, weights, data.context, BATCHES_READ * data.rows, seed, epoch)

    decides = [index.fingerprint, weights, data.context, data.rows, data.within_documents]
    return ShardLoader(shards, order, read, seed, json_digest(decides))


def masked_shards(shards: ShardSet, tokenizer: Tokenizer, data: MaskedConfig, seed: int) -> ShardLoader[MaskedBatch]:
    """Parts of documents of similar length, masked anew each epoch."""
    frame, masking = Frame.of(tokenizer), Masking.of(tokenizer, data)

    def read(samples: Indices) -> SampleWindow[MaskedBatch]:
        (tokens,), present = shards.columns(samples)

        def collate(chosen: Indices, draw: Draw) -> MaskedBatch:
            return collate_masked(frame, masking, [tokens[i] for i in chosen.tolist()], draw)

        return SampleWindow(samples[present], _by_length([tokens], data, 1), collate, len)

    decides = [data.batch_tokens, data.bucket_noise]
    decides += [data.masked_share, data.mask_token_share, data.random_token_share]
    return _loader(shards, data, data.weights, seed, read, decides)


def labeled_shards(shards: ShardSet, tokenizer: Tokenizer, data: LabeledConfig, seed: int) -> ShardLoader[LabeledBatch]:
    """Labeled texts of similar length."""
    frame, outputs = Frame.of(tokenizer), _outputs(shards.index)

    def read(samples: Indices) -> SampleWindow[LabeledBatch]:
        (*texts, labels), present = shards.columns(samples)
        label_ids = outputs[labels.values]

        def collate(chosen: Indices, draw: Draw) -> LabeledBatch:
            batch = collate_labeled(frame, [[text[i] for text in texts] for i in chosen.tolist()], label_ids, chosen)
            return replace(batch, examples=samples[present][chosen])

        return SampleWindow(samples[present], _by_length(texts, data, 1), collate, len)

    return _loader(shards, data, [], seed, read, [data.batch_tokens, data.bucket_noise])


def tagged_shards(shards: ShardSet, tokenizer: Tokenizer, data: TaggedConfig, seed: int) -> ShardLoader[TaggedBatch]:
    """Tagged sentences of similar length."""
    frame, outputs = Frame.of(tokenizer), _outputs(shards.index)

    def read(samples: Indices) -> SampleWindow[TaggedBatch]:
        (pieces, words, tags), present = shards.columns(samples)

        def collate(chosen: Indices, draw: Draw) -> TaggedBatch:
            numbers = chosen.tolist()
            sentences = [Ragged(pieces[i], np.concatenate([[0], words[i].cumsum()])) for i in numbers]
            return collate_tagged(frame, sentences, [outputs[tags[i]] for i in numbers], samples[present][chosen])

        return SampleWindow(samples[present], _by_length([pieces], data, 1), collate, len)

    return _loader(shards, data, [], seed, read, [data.batch_tokens, data.bucket_noise])


def sorted_names(index: ShardIndex) -> tuple[str, ...]:
    """Labels or tags in the order of the model's outputs."""
    return tuple(sorted(index.names))


def _outputs(index: ShardIndex) -> NDArray[np.int64]:
    """Number of the model's output for each stored name."""
    outputs = {name: output for output, name in enumerate(sorted_names(index))}
    return np.array([outputs[name] for name in index.names], np.int64)


def _by_length(texts: Sequence[Ragged], data: Any, frame: int) -> Any:
    """Sampler of sequences of similar length, of one or two texts."""
    lengths = np.stack([text.lengths for text in texts]).sum(axis=0, dtype=np.int32) + np.int32(frame + len(texts))
    return sequence_sampler(lengths, data.batch_tokens, data.bucket_noise) if len(lengths) else lambda _: ()


def _loader(
    shards: ShardSet,
    data: Any,
    weights: Sequence[float],
    seed: int,
    read: Callable[[Indices], SampleWindow[Any]],
    decides: list[Any],
) -> ShardLoader[Any]:
    sizes, times = [one.samples for one in shards.index.sets], _weights(shards.index, weights)

    def order(epoch: int) -> EpochOrder:
        return EpochOrder.of(sizes, times, data.bucket_window, seed, epoch)

    return ShardLoader(
        shards, order, read, seed, json_digest([shards.index.fingerprint, times, data.bucket_window, decides])
    )


def _weights(index: ShardIndex, weights: Sequence[float]) -> list[float]:
    """A weight for each set: those of ``data.weights``, or 1. Raises ``DataError`` unless there is one for each set."""
    if weights and len(weights) != len(index.sets):
        raise DataError(
            f"data.weights has {len(weights)} values, and the shards were prepared from {len(index.sets)} paths; "
            "give one weight each"
        )
    return list(weights) or [1.0] * len(index.sets)
