"""Keys and values already computed, owned by whoever decodes (the model stores nothing).

With the keys and values of earlier positions kept, a decoding step costs one position instead of the whole prefix.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass
class KeyValueCache:
    """Keys and values of one attention, ``[rows, heads, length, d_head]``, in buffers that grow by doubling."""

    keys: Tensor | None = None
    values: Tensor | None = None
    length: int = 0

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add new positions and return all of them."""
        end = self.length + keys.size(2)
        self.keys = self._room(self.keys, keys, end)
        self.values = self._room(self.values, values, end)
        self.keys[:, :, self.length : end] = keys
        self.values[:, :, self.length : end] = values
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def select(self, rows: Tensor) -> None:
        """Keep ``rows`` in this order; a row may appear several times, as when a beam branches."""
        if self.keys is not None and self.values is not None:
            self.keys = self.keys.index_select(0, rows)
            self.values = self.values.index_select(0, rows)

    def _room(self, buffer: Tensor | None, new: Tensor, end: int) -> Tensor:
        if buffer is not None and buffer.size(2) >= end:
            return buffer
        capacity = max(16, end, 2 * self.length)
        larger = new.new_empty(new.size(0), new.size(1), capacity, new.size(3))
        if buffer is not None:
            larger[:, :, : self.length] = buffer[:, :, : self.length]
        return larger


@dataclass
class BlockCache:
    """What one decoder block keeps: its own past, and the memory it attends to, projected once."""

    self_attention: KeyValueCache = field(default_factory=KeyValueCache)
    cross_attention: KeyValueCache = field(default_factory=KeyValueCache)


class StackCache(list[BlockCache]):
    """One ``BlockCache`` per block."""

    def __init__(self, n_layers: int):
        super().__init__(BlockCache() for _ in range(n_layers))

    @property
    def length(self) -> int:
        """Positions already decoded."""
        return self[0].self_attention.length if self else 0

    def select(self, rows: Tensor) -> None:
        """Keep ``rows`` of the past; what is kept of the memory is per sentence, see ``select_sentences``."""
        if (
            rows.numel()
            and torch.equal(rows, torch.arange(rows.numel(), device=rows.device))
            and self._rows() == len(rows)
        ):
            return
        for block in self:
            block.self_attention.select(rows)

    def select_sentences(self, sentences: Tensor) -> None:
        for block in self:
            block.cross_attention.select(sentences)

    def _rows(self) -> int:
        keys = self[0].self_attention.keys if self else None
        return 0 if keys is None else keys.size(0)


@dataclass
class DecoderState:
    """What decoding carries from step to step; ``rows`` hypotheses, k for each of ``batch`` sentences."""

    memory: Float[Tensor, "batch source d_model"]
    memory_mask: Bool[Tensor, "batch source"]
    cache: StackCache | None
    tokens: Int[Tensor, "rows length"] | None = None
    """The prefix so far; kept only without a cache, when every step computes all of it again."""

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keep these hypotheses, in this order."""
        if self.cache is not None:
            self.cache.select(rows)
        if self.tokens is not None:
            self.tokens = self.tokens[rows]

    def select_sentences(self, sentences: Int[Tensor, " batch"]) -> None:
        """Keep the memory of these sentences, in this order."""
        self.memory, self.memory_mask = self.memory[sentences], self.memory_mask[sentences]
        if self.cache is not None:
            self.cache.select_sentences(sentences)
