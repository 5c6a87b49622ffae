"""A batch: sentences of similar length, padded to a rectangle on each side."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int64
from numpy.typing import NDArray
from torch import Tensor

from glassformer.text import TokenizerPair

Ids = Sequence[int] | NDArray[np.integer]


@dataclass(frozen=True)
class Batch:
    """``source``: tokens, end, padding. ``target``: start, tokens, end, padding.

    The decoder is fed ``target[:, :-1]`` and predicts ``target[:, 1:]``.
    """

    source: Int64[Tensor, "batch source"]
    target: Int64[Tensor, "batch target"]
    source_tokens: int  # that are not padding
    target_tokens: int  # predicted ones that are not padding
    examples: NDArray[np.int64]  # the index of each row's pair in the corpora laid end to end

    def __len__(self) -> int:
        return len(self.source)

    @property
    def padded_tokens(self) -> int:
        """Positions the encoder and the decoder compute, padding included."""
        return self.source.numel() + self.target.numel() - len(self)

    def to(self, device: torch.device | str) -> "Batch":
        source, target = (side.to(device, non_blocking=True) for side in (self.source, self.target))
        return Batch(source, target, self.source_tokens, self.target_tokens, self.examples)


def collate(
    sources: Sequence[Ids], targets: Sequence[Ids], tokenizers: TokenizerPair, examples: NDArray[np.int64] | None = None
) -> Batch:
    """One batch of sentences given as ids without special tokens, in their order."""
    from_vocabulary, to_vocabulary = tokenizers.source, tokenizers.target
    source = _rectangle(sources, [], from_vocabulary.end_id, from_vocabulary.pad_id)
    target = _rectangle(targets, [to_vocabulary.start_id], to_vocabulary.end_id, to_vocabulary.pad_id)
    return Batch(
        torch.from_numpy(source),
        torch.from_numpy(target),
        source_tokens=sum(map(len, sources)) + len(sources),
        target_tokens=sum(map(len, targets)) + len(targets),
        examples=np.arange(len(sources)) if examples is None else examples,
    )


def _rectangle(rows: Sequence[Ids], lead: list[int], end_id: int, pad_id: int) -> NDArray[np.int64]:
    """Rows of ``lead``, the ids, ``end_id``, and ``pad_id`` up to the longest row."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    first, ends = len(lead), len(lead) + lengths
    padded = np.full((len(rows), ends.max() + 1), pad_id, np.int64)
    column = np.arange(padded.shape[1])
    padded[:, :first] = lead
    padded[(first <= column) & (column < ends[:, None])] = np.concatenate(rows, dtype=np.int64, casting="unsafe")
    padded[np.arange(len(rows)), ends] = end_id
    return padded
