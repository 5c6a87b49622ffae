"""Batches for a language model: windows of a stream, each token predicted from those before it in its window."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from glassformer.data.batches import times
from glassformer.data.loader import ResumableLoader, moved
from glassformer.data.token_store import joint_digest
from glassformer.data.token_stream import Stream
from glassformer.data.token_stream_config import StreamConfig
from glassformer.errors import DataError
from glassformer.text import Tokenizer


@dataclass(frozen=True)
class WindowBatch:
    """Windows of text, and the same text one token later."""

    tokens: Int64[Tensor, "rows context"]
    labels: Int64[Tensor, "rows context"]
    documents: Int64[Tensor, "rows context"] | None
    """Their numbers (``number_documents``), when attention is to stay within one."""

    def __len__(self) -> int:
        """Windows."""
        return len(self.tokens)

    @property
    def source_tokens(self) -> int:
        """Tokens that are read."""
        return self.tokens.numel()

    @property
    def n_targets(self) -> int:
        """Predictions that the loss is averaged over."""
        return self.labels.numel()

    def describe(self) -> str:
        return f"{self.tokens.shape[0]} windows of {self.tokens.shape[1]} tokens"

    def to(self, device: torch.device | str) -> "WindowBatch":
        return moved(self, device)


def number_documents(tokens: Int64[Tensor, "rows context"], end_id: int) -> Int64[Tensor, "rows context"]:
    """Of each token the number of its document within the window, from 1.

    The end token, as an input, opens the next document: it is what the first token of a document is predicted from.
    """
    ended = (tokens == end_id).cumsum(1)
    return ended - ended[:, :1] + 1


def logits_within_documents(
    model: Callable[..., Tensor], end_id: int
) -> Callable[[Int64[Tensor, "rows context"]], Float[Tensor, "rows context vocab"]]:
    """The logits of ``model`` with every document of a row by itself, as it was trained where the data say so."""
    return lambda tokens: model(tokens, number_documents(tokens, end_id))


class Windows(ResumableLoader[list[NDArray[np.int64]], WindowBatch]):
    """Windows of ``context`` tokens of the streams, in an order drawn from (seed, epoch).

    Every epoch cuts each stream from another offset, drawn from 0 to ``context`` - 1, so that a token stands at every
    place of a window in time. A window begins with the token that was the last one wanted of the window before it.
    What is left over at both ends, less than a window together with its wanted token, is not seen in that epoch.
    The batches of an epoch have as many windows as each other, or one less.

    Raises ``DataError`` when a stream is shorter than a window and the token after it.
    """

    padding_share = 0.0

    def __init__(self, streams: Sequence[Stream], tokenizer: Tokenizer, config: StreamConfig, seed: int) -> None:
        self.streams, self.config = list(streams), config
        self.weights = config.weights or [1.0] * len(self.streams)
        self.end_id = tokenizer.end_id
        self._check()
        self._starts = np.cumsum([0, *map(len, self.streams)])
        made_from = [
            [[stream.fingerprint, weight] for stream, weight in zip(self.streams, self.weights, strict=True)],
            [config.context, config.rows, config.within_documents],
        ]
        self.fingerprint = hashlib.sha256(json.dumps(made_from).encode()).hexdigest()
        self.content_digest = joint_digest(stream.content_digest for stream in self.streams)
        super().__init__(seed)

    def _plan_epoch(self, epoch: int) -> list[NDArray[np.int64]]:
        """For every batch where its windows begin, in the streams laid end to end."""
        generator = np.random.default_rng((self.seed, epoch))
        parts = list[NDArray[np.int64]]()
        for start, stream, weight in zip(self._starts[:-1], self.streams, self.weights, strict=True):
            last = len(stream) - self.config.context - 1  # where a window may begin at the latest
            offset = int(generator.integers(min(self.config.context, last + 1)))
            begins = np.arange(offset, last + 1, self.config.context)
            parts.append(start + begins[times(len(begins), weight, generator)])
        windows = generator.permutation(np.concatenate(parts))
        return np.array_split(windows, -(-len(windows) // self.config.rows))

    def _make(self, plan: list[NDArray[np.int64]], epoch: int, position: int) -> WindowBatch:
        rows = np.stack([self._window(begin) for begin in plan[position].tolist()]).astype(np.int64)
        tokens, labels = (torch.from_numpy(np.ascontiguousarray(side)) for side in (rows[:, :-1], rows[:, 1:]))
        documents = number_documents(tokens, self.end_id) if self.config.within_documents else None
        return WindowBatch(tokens, labels, documents)

    def _largest(self, plan: list[NDArray[np.int64]]) -> int:
        return 0  # array_split puts the longer ones first

    def _window(self, begin: int) -> NDArray[np.integer]:
        number = int(np.searchsorted(self._starts, begin, side="right")) - 1
        begin -= int(self._starts[number])
        return self.streams[number].ids[begin : begin + self.config.context + 1]

    def _check(self) -> None:
        if len(self.weights) != len(self.streams):
            raise DataError(
                f"data.weights has {len(self.weights)} values for {len(self.streams)} streams; give one each"
            )
        for stream in self.streams:
            if len(stream) <= self.config.context:
                names = ", ".join(file.path for file in stream.account.files)
                raise DataError(
                    f"{names}: {len(stream):,} tokens are less than one window of data.context={self.config.context} "
                    f"and the token after it; lower data.context to {len(stream) - 1} or give more text"
                )
