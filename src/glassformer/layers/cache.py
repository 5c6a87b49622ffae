"""Key–value cache, owned by the caller: the model stores nothing.

With cached keys and values a decoding step computes one position instead of the whole prefix.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer.layers.position import Offset

MIN_GROWTH = 16
"""Minimum growth of a buffer in positions. Attention reads the full buffer with a mask: a product of a new shape in
every step would cost more than the zeros."""


def capacity_for(length: int) -> int:
    """Positions of a buffer for ``length``: a multiple of ``MIN_GROWTH``, or of a power of two near an eighth."""
    step = max(MIN_GROWTH, 1 << max(0, length.bit_length() - 4))
    return -(-length // step) * step


@dataclass
class KeyValueCache:
    """Keys and values of one attention, ``[rows, heads, length, d_head]``, in buffers with spare capacity."""

    keys: Tensor | None = None
    values: Tensor | None = None
    length: int = 0

    @property
    def offset(self) -> Offset:
        """The next position."""
        return self.length

    def append(self, keys: Tensor, values: Tensor, with_capacity: bool = False) -> tuple[Tensor, Tensor]:
        """Add new positions and return all of them.

        ``with_capacity`` also returns the zeros of future positions, unless the cache was empty; the mask must hide
        them.
        """
        begin, end = self.length, self.length + keys.size(2)
        self.keys = self._grown(self.keys, keys, end)
        self.values = self._grown(self.values, values, end)
        self.keys[:, :, self.length : end] = keys
        self.values[:, :, self.length : end] = values
        self.length = end
        return self._readable(with_capacity and begin > 0)

    def _readable(self, with_capacity: bool) -> tuple[Tensor, Tensor]:
        assert self.keys is not None and self.values is not None
        size = capacity_for(self.length) if with_capacity else self.length
        return self.keys[:, :, :size], self.values[:, :, :size]

    def select(self, rows: Tensor) -> None:
        """Keep ``rows`` in this order; a row may appear several times, as when a beam branches."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys.index_select(0, rows), self.values.index_select(0, rows)

    def replace(self, rows: Tensor, by: Tensor) -> None:
        """Copy the rows ``by`` to ``rows``; other rows are not copied."""
        for buffer in (self.keys, self.values):
            if buffer is not None:
                used = buffer[:, :, : self.length]
                used.index_copy_(0, rows, used.index_select(0, by))

    def _grown(self, buffer: Tensor | None, new: Tensor, end: int) -> Tensor:
        if buffer is not None and buffer.size(2) >= end:
            return buffer
        capacity = capacity_for(end)
        larger = new.new_zeros(new.size(0), new.size(1), capacity, new.size(3))
        if buffer is not None:
            larger[:, :, : self.length] = buffer[:, :, : self.length]
        return larger


@dataclass
class BlockCache:
    """Keys and values of one decoder block: of the tokens so far, and of the memory."""

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
        """Keep ``rows`` of the self-attention caches; memory belongs to sentences (``select_sentences``)."""
        moved = None
        if len(rows) == self._rows():
            moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero().squeeze(1)
        for block in self:
            if moved is None or 2 * len(moved) > len(rows):
                block.self_attention.select(rows)
            elif len(moved):
                block.self_attention.replace(moved, rows[moved])

    def select_sentences(self, sentences: Tensor) -> None:
        for block in self:
            block.cross_attention.select(sentences)

    def _rows(self) -> int:
        keys = self[0].self_attention.keys if self else None
        return 0 if keys is None else keys.size(0)


@dataclass
class DecoderState:
    """State of decoding between steps, of ``rows`` hypotheses: k for each of ``batch`` sentences."""

    memory: Float[Tensor, "batch source d_model"]
    memory_mask: Bool[Tensor, "batch source"]
    cache: StackCache | None
    tokens: Int[Tensor, "rows length"] | None = None
    """The prefix so far; only without a cache, when every step computes all of it again."""

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
