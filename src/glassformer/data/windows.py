"""Batches for a language model: windows of a stream, each token predicted from those before it in its window."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from glassformer.data.config import StreamConfig
from glassformer.data.loader import Draw, ResumableLoader, Tensors
from glassformer.data.sampling import Indices, Mixture, in_windows
from glassformer.data.token_store import joint_digest, json_digest
from glassformer.data.token_stream import Stream
from glassformer.errors import DataError
from glassformer.text import Tokenizer


@dataclass(frozen=True)
class WindowBatch(Tensors):
    """Windows of text, and the same text one token later."""

    tokens: Int64[Tensor, "rows context"]
    labels: Int64[Tensor, "rows context"]
    documents: Int64[Tensor, "rows context"] | None
    """Document numbers (``number_documents``) if attention stays within a document."""

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


def number_documents(tokens: Int64[Tensor, "rows context"], end_id: int) -> Int64[Tensor, "rows context"]:
    """Number of each token's document within the window, from 1.

    The end token, as an input, opens the next document: it is what the first token of a document is predicted from.
    """
    ended = (tokens == end_id).cumsum(1)
    return ended - ended[:, :1] + 1


def logits_within_documents(
    model: Callable[..., Tensor], end_id: int
) -> Callable[[Int64[Tensor, "rows context"]], Float[Tensor, "rows context vocab"]]:
    """The logits of ``model`` with every document of a row by itself, as it was trained where the data say so."""
    return lambda tokens: model(tokens, number_documents(tokens, end_id))


def window_batches(
    streams: Sequence[Stream], tokenizer: Tokenizer, config: StreamConfig, seed: int
) -> ResumableLoader[Indices, WindowBatch]:
    """Windows of ``config.context`` tokens of the streams, in an order drawn from (seed, epoch).

    Raises ``DataError`` when a stream is shorter than a window and the token after it.
    """
    mixture = Mixture.of([len(stream) for stream in streams], config.weights, "streams")
    _check_length(streams, config.context)

    end_id = tokenizer.end_id if config.within_documents else None

    def window(begin: int) -> NDArray[np.integer]:
        number, begin = mixture.locate(begin)
        return streams[number].ids[begin : begin + config.context + 1]

    def collate(begins: Indices, _: Draw) -> WindowBatch:
        return collate_windows(np.stack([window(begin) for begin in begins.tolist()]), end_id)

    made_from = [
        [[stream.fingerprint, weight] for stream, weight in zip(streams, mixture.weights, strict=True)],
        [config.context, config.rows, config.within_documents],
    ]
    sampler = partial(in_windows, mixture, config.context, config.rows)
    digest = joint_digest(stream.content_digest for stream in streams)
    return ResumableLoader(sampler, collate, seed, json_digest(made_from), digest)


def collate_windows(rows: NDArray[np.integer], end_id: int | None) -> WindowBatch:
    """The batch of windows with the token after each. ``end_id``: the end token if attention stays in documents."""
    rows = rows.astype(np.int64)
    tokens, labels = (torch.from_numpy(np.ascontiguousarray(side)) for side in (rows[:, :-1], rows[:, 1:]))
    return WindowBatch(tokens, labels, None if end_id is None else number_documents(tokens, end_id))


def _check_length(streams: Sequence[Stream], context: int) -> None:
    for stream in streams:
        if len(stream) <= context:
            names = ", ".join(file.path for file in stream.account.files)
            raise DataError(
                f"{names}: {len(stream):,} tokens are less than one window of data.context={context} "
                f"and the token after it; lower data.context to {len(stream) - 1} or give more text"
            )
