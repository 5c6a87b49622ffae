"""Keys and values already computed, owned by whoever decodes (the model stores nothing).

With the keys and values of earlier positions kept, a decoding step costs one position instead of the whole prefix.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer.layers.position import Offset

ROOM = 16
"""Positions that buffers of keys and values grow by, at least. Attention reads them whole, with those to come masked:
a product of a new shape every step would cost more than the zeros do."""


def capacity_for(length: int) -> int:
    """Positions of a buffer for ``length``: the next multiple of ``ROOM``, or of a power of two near an eighth."""
    step = max(ROOM, 1 << max(0, length.bit_length() - 4))
    return -(-length // step) * step


@dataclass
class KeyValueCache:
    """Keys and values of one attention, ``[rows, heads, length, d_head]``, in buffers with some room to grow."""

    keys: Tensor | None = None
    values: Tensor | None = None
    length: int = 0

    @property
    def offset(self) -> Offset:
        """The position that comes next."""
        return self.length

    def append(self, keys: Tensor, values: Tensor, room: bool = False) -> tuple[Tensor, Tensor]:
        """Add new positions and return all of them.

        With ``room`` the zeros for positions to come are returned too, unless the cache was empty; the mask has to hide
        them.
        """
        begin, end = self.length, self.length + keys.size(2)
        self.keys = self._room(self.keys, keys, end)
        self.values = self._room(self.values, values, end)
        self.keys[:, :, self.length : end] = keys
        self.values[:, :, self.length : end] = values
        self.length = end
        return self._readable(room and begin > 0)

    def _readable(self, room: bool) -> tuple[Tensor, Tensor]:
        assert self.keys is not None and self.values is not None
        size = capacity_for(self.length) if room else self.length
        return self.keys[:, :, :size], self.values[:, :, :size]

    def select(self, rows: Tensor) -> None:
        """Keep ``rows`` in this order; a row may appear several times, as when a beam branches."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys.index_select(0, rows), self.values.index_select(0, rows)

    def replace(self, rows: Tensor, by: Tensor) -> None:
        """``rows`` become what the rows ``by`` were; the others stay where they are, uncopied."""
        for buffer in (self.keys, self.values):
            if buffer is not None:
                used = buffer[:, :, : self.length]
                used.index_copy_(0, rows, used.index_select(0, by))

    def _room(self, buffer: Tensor | None, new: Tensor, end: int) -> Tensor:
        if buffer is not None and buffer.size(2) >= end:
            return buffer
        capacity = capacity_for(end)
        larger = new.new_zeros(new.size(0), new.size(1), capacity, new.size(3))
        if buffer is not None:
            larger[:, :, : self.length] = buffer[:, :, : self.length]
        return larger


@dataclass
class BlockCache:
    """Keys and values of one decoder block: those of its past, and those of the memory, projected once."""

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
