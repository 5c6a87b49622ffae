"""Batches for a masked language model: some tokens hidden, drawn anew each epoch (Devlin and Liu, both 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from jaxtyping import Bool, Int64
from numpy.typing import NDArray
from torch import Tensor

from glassformer.data.config import MaskedConfig
from glassformer.data.loader import Draw, ResumableLoader, Tensors
from glassformer.data.sampling import Indices, Mixture
from glassformer.data.sequences import Frame, sequence_sampler, special_id
from glassformer.data.token_store import Ids, joint_digest, json_digest
from glassformer.data.token_stream import Stream
from glassformer.text import Tokenizer


@dataclass(frozen=True)
class MaskedBatch(Tensors):
    """Sequences with hidden tokens, and what they were."""

    tokens: Int64[Tensor, "rows width"]  # as the model sees them
    mask: Bool[Tensor, "rows width"]  # True: a token, False: padding
    labels: Int64[Tensor, "rows width"]  # as they were
    predicted: Bool[Tensor, "rows width"]  # where the loss counts
    segments: Int64[Tensor, "rows width"]  # all 0: one text a sequence
    source_tokens: int
    n_targets: int

    def __len__(self) -> int:
        return len(self.tokens)

    def token_counts(self) -> dict[str, int]:
        return {"source_tokens": int(self.mask.sum()), "n_targets": int(self.predicted.sum())}

    def describe(self) -> str:
        return f"{self.tokens.shape[0]} sequences of {self.tokens.shape[1]} tokens"


@dataclass(frozen=True)
class Masking:
    """Choice of the predicted tokens, and of their replacements.

    Of the n tokens of a sequence ``masked_share`` · n are predicted, rounded up or down by chance, and at least one.
    Special tokens never are, nor does one ever stand for another. An unknown symbol is predicted only where a
    sequence has nothing else.
    """

    config: MaskedConfig
    mask_id: int
    unknown_id: int
    ordinary: Bool[np.ndarray, " vocab"]  # False: a special token

    @classmethod
    def of(cls, tokenizer: Tokenizer, config: MaskedConfig) -> Self:
        ordinary = np.ones(tokenizer.vocab_size, np.bool_)
        ordinary[list(tokenizer.special_tokens.values())] = False
        return cls(config, special_id(tokenizer, "[MASK]"), tokenizer.unknown_id, ordinary)

    def hide(
        self, labels: Int64[np.ndarray, "rows width"], generator: np.random.Generator
    ) -> tuple[Int64[np.ndarray, "rows width"], Bool[np.ndarray, "rows width"]]:
        """The tokens as the model sees them, and which ones it predicts."""
        predicted = self._choose(labels, generator)
        drawn = generator.random(labels.shape)
        others = generator.choice(np.flatnonzero(self.ordinary), labels.shape)
        hidden = self.config.mask_token_share
        replaced = hidden + self.config.random_token_share
        tokens = np.where(predicted & (drawn < hidden), self.mask_id, labels)
        return np.where(predicted & (drawn >= hidden) & (drawn < replaced), others, tokens), predicted

    def _choose(
        self, labels: Int64[np.ndarray, "rows width"], generator: np.random.Generator
    ) -> Bool[np.ndarray, "rows width"]:
        candidates = self.ordinary[labels]
        only_unknown = ~candidates.any(axis=1)
        candidates[only_unknown] = labels[only_unknown] == self.unknown_id
        amounts = np.floor(candidates.sum(axis=1) * self.config.masked_share + generator.random(len(labels)))
        keys = np.where(candidates, generator.random(labels.shape), 2.0)
        ranks = keys.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
        return candidates & (ranks < np.maximum(amounts, 1)[:, None])


def masked_batches(
    streams: Sequence[Stream], tokenizer: Tokenizer, config: MaskedConfig, seed: int
) -> ResumableLoader[Indices, MaskedBatch]:
    """Every document of the streams, cut into equal parts of at most ``max_length`` tokens, frame included.

    The hidden tokens are drawn from (seed, epoch, position): a sequence is masked otherwise in each epoch.
    """
    frame, masking = Frame.of(tokenizer), Masking.of(tokenizer, config)
    cuts = [_cut(stream, config.max_length - 2) for stream in streams]
    mixture = Mixture.of([len(begins) for begins, _ in cuts], config.weights, "streams")
    begins, sizes = (np.concatenate(parts) for parts in zip(*cuts, strict=True))

    def ids(example: int) -> NDArray[np.integer]:
        number, _ = mixture.locate(example)
        return streams[number].ids[begins[example] : begins[example] + sizes[example]]

    def collate(examples: Indices, draw: Draw) -> MaskedBatch:
        return collate_masked(frame, masking, [ids(example) for example in examples.tolist()], draw)

    shares = [config.masked_share, config.mask_token_share, config.random_token_share]
    made_from = [
        [[stream.fingerprint, weight] for stream, weight in zip(streams, mixture.weights, strict=True)],
        [config.max_length, config.batch_tokens, config.bucket_noise, *shares],
    ]
    sampler = sequence_sampler((sizes + 2).astype(np.int32), config.batch_tokens, config.bucket_noise, mixture)
    digest = joint_digest(stream.content_digest for stream in streams)
    return ResumableLoader(sampler, collate, seed, json_digest(made_from), digest)


def collate_masked(frame: Frame, masking: Masking, sequences: Sequence[Ids], draw: Draw) -> MaskedBatch:
    """The batch of some sequences, masked by the random numbers of ``draw``."""
    labels, mask, segments = frame.rows([[ids] for ids in sequences])
    tokens, predicted = masking.hide(labels, draw.generator())
    return MaskedBatch(
        torch.from_numpy(tokens),
        torch.from_numpy(mask),
        torch.from_numpy(labels),
        torch.from_numpy(predicted),
        torch.from_numpy(segments),
        source_tokens=int(mask.sum()),
        n_targets=int(predicted.sum()),
    )


def _cut(stream: Stream, room: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First positions and sizes of the parts of the documents."""
    document, begins, sizes = equal_parts(np.diff(stream.offsets) - 1, room)
    return stream.offsets[document] + begins, sizes


def equal_parts(
    lengths: NDArray[np.int64], room: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Document, first position in it, and size of the parts of documents: as few as fit ``room``, as equal as can be.

    ``lengths``: the tokens of each document.
    """
    parts = -(-lengths // room)
    document = np.repeat(np.arange(len(lengths)), parts)
    number = np.arange(len(document)) - np.repeat(np.cumsum(parts) - parts, parts)
    begins = number * lengths[document] // parts[document]
    ends = (number + 1) * lengths[document] // parts[document]
    return document, begins, ends - begins
