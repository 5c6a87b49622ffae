"""Batches for a masked language model: some tokens hidden, drawn anew each epoch (Devlin and Liu, both 2019)."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from jaxtyping import Bool, Int64
from numpy.typing import NDArray
from torch import Tensor

from glassformer.data.batches import times
from glassformer.data.loader import moved
from glassformer.data.masking_config import MaskedConfig
from glassformer.data.sampling import Plan
from glassformer.data.sequences import Frame, SequenceEpochs, special_id
from glassformer.data.token_store import joint_digest
from glassformer.data.token_stream import Stream
from glassformer.errors import DataError
from glassformer.text import Tokenizer


@dataclass(frozen=True)
class MaskedBatch:
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

    def describe(self) -> str:
        return f"{self.tokens.shape[0]} sequences of {self.tokens.shape[1]} tokens"

    def to(self, device: torch.device | str) -> "MaskedBatch":
        return moved(self, device)


@dataclass(frozen=True)
class Masking:
    """Which tokens are predicted, and what stands in their place.

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


class MaskedSequences(SequenceEpochs[MaskedBatch]):
    """Every document of the streams, cut into equal parts of at most ``max_length`` tokens with those around them.

    Which tokens are hidden is drawn from (seed, epoch, position): a sequence is masked otherwise in each epoch.
    """

    def __init__(self, streams: Sequence[Stream], tokenizer: Tokenizer, config: MaskedConfig, seed: int) -> None:
        self.streams, self.config = list(streams), config
        self.weights = config.weights or [1.0] * len(self.streams)
        if len(self.weights) != len(self.streams):
            raise DataError(
                f"data.weights has {len(self.weights)} values for {len(self.streams)} streams; give one each"
            )
        self.frame, self.masking = Frame.of(tokenizer), Masking.of(tokenizer, config)
        cuts = [_cut(stream, config.max_length - 2) for stream in self.streams]
        self._firsts = np.cumsum([0, *(len(begins) for begins, _ in cuts)])
        self._begins = np.concatenate([begins for begins, _ in cuts])
        self._sizes = np.concatenate([sizes for _, sizes in cuts])
        shares = [config.masked_share, config.mask_token_share, config.random_token_share]
        made_from = [
            [[stream.fingerprint, weight] for stream, weight in zip(self.streams, self.weights, strict=True)],
            [config.max_length, config.batch_tokens, config.bucket_noise, *shares],
        ]
        self.fingerprint = hashlib.sha256(json.dumps(made_from).encode()).hexdigest()
        self.content_digest = joint_digest(stream.content_digest for stream in self.streams)
        super().__init__((self._sizes + 2).astype(np.int32), config.batch_tokens, config.bucket_noise, seed)

    def _examples(self, generator: np.random.Generator) -> NDArray[np.int64]:
        sizes = np.diff(self._firsts).tolist()
        parts = [
            first + times(size, weight, generator)
            for first, size, weight in zip(self._firsts.tolist(), sizes, self.weights, strict=False)
        ]
        return np.concatenate(parts)

    def _make(self, plan: Plan, epoch: int, position: int) -> MaskedBatch:
        labels, mask, segments = self.frame.rows([[self._ids(i)] for i in plan.batch(position).tolist()])
        # 1 + position: to numpy the seeds (a, b) and (a, b, 0) are one, and (a, b) has drawn the plan.
        tokens, predicted = self.masking.hide(labels, np.random.default_rng((self.seed, epoch, 1 + position)))
        return MaskedBatch(
            torch.from_numpy(tokens),
            torch.from_numpy(mask),
            torch.from_numpy(labels),
            torch.from_numpy(predicted),
            torch.from_numpy(segments),
            source_tokens=int(mask.sum()),
            n_targets=int(predicted.sum()),
        )

    def _ids(self, example: int) -> NDArray[np.integer]:
        number = int(np.searchsorted(self._firsts, example, side="right")) - 1
        begin = int(self._begins[example])
        return self.streams[number].ids[begin : begin + int(self._sizes[example])]


def _cut(stream: Stream, room: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the parts of the documents begin, and their tokens: as few parts as fit, as equal as can be."""
    lengths = np.diff(stream.offsets) - 1
    parts = -(-lengths // room)
    document = np.repeat(np.arange(len(lengths)), parts)
    number = np.arange(len(document)) - np.repeat(np.cumsum(parts) - parts, parts)
    begins = number * lengths[document] // parts[document]
    ends = (number + 1) * lengths[document] // parts[document]
    return stream.offsets[document] + begins, ends - begins
