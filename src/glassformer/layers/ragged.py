"""Rows of different length that grow together, as prompts do: the place of a key in the cache is its position.

A row's new keys and values take the places of the padding behind its prompt, so that all rows are as if alone.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from glassformer.layers.cache import KeyValueCache, StackCache
from glassformer.layers.position import Learned, Offset, end_of


@dataclass
class RaggedCache(KeyValueCache):
    """``length`` is that of the longest row, or more where the longest has left."""

    lengths: Int[Tensor, " rows"] = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))

    @property
    def offset(self) -> Offset:
        return self.lengths

    def append(self, keys: Tensor, values: Tensor, room: bool = False) -> tuple[Tensor, Tensor]:
        begin, end = self.length, self.length + keys.size(2)
        self.keys, self.values = self._room(self.keys, keys, end), self._room(self.values, values, end)
        places = self.lengths[:, None] + torch.arange(keys.size(2), device=keys.device)
        rows = torch.arange(len(places), device=keys.device)[:, None]
        self.keys[rows, :, places] = keys.transpose(1, 2)
        self.values[rows, :, places] = values.transpose(1, 2)
        self.length, self.lengths = end, self.lengths + keys.size(2)
        return self._readable(room and begin > 0)

    def select(self, rows: Tensor) -> None:
        super().select(rows)
        self.lengths = self.lengths[rows]

    def replace(self, rows: Tensor, by: Tensor) -> None:
        super().replace(rows, by)
        self.lengths = self.lengths.index_copy(0, rows, self.lengths[by])


def ragged(cache: StackCache, lengths: Int[Tensor, " rows"]) -> StackCache:
    """``cache`` after padded prompts, of which each row holds ``lengths`` real tokens."""
    for block in cache:
        own = block.self_attention
        block.self_attention = RaggedCache(own.keys, own.values, own.length, lengths)
    return cache


@dataclass
class PromptState:
    """State of decoding a language model between steps: keys and values of each hypothesis, prompt included."""

    lengths: Int[Tensor, " rows"]
    """Tokens seen."""
    cache: StackCache | None
    tokens: Int[Tensor, "rows room"]
    """The past itself; kept only without a cache, when every step computes all of it again."""

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keep these hypotheses, in this order."""
        self.lengths = self.lengths[rows]
        if self.cache is None:
            self.tokens = self.tokens[rows]
        else:
            self.cache.select(rows)

    def select_sentences(self, sentences: Int[Tensor, " sentences"]) -> None:
        """A prompt belongs to the hypotheses that continue it: there is nothing more to choose."""

    def extended(self, tokens: Int[Tensor, "rows new"]) -> tuple[Tensor, Tensor]:
        """Without a cache: the past of each row with ``tokens`` behind it, and where it holds a token."""
        places = self.lengths[:, None] + torch.arange(tokens.size(1), device=tokens.device)
        self.lengths = self.lengths + tokens.size(1)
        wider = max(0, end_of(self.lengths, 0) - self.tokens.size(1))
        self.tokens = F.pad(self.tokens, (0, wider)).scatter(1, places, tokens)
        return self.tokens, torch.arange(self.tokens.size(1), device=tokens.device) < self.lengths[:, None]


def within_table(position: Learned, offset: Int[Tensor, " rows"], length: int) -> Int[Tensor, " rows"]:
    """``offset``, in rows without ``length`` free positions moved back to the last ones, if another row has some.

    A search keeps ended rows for a while; its limits ensure that no other row gets that far.
    """
    last = position.n_positions - length
    return offset.clamp(max=last) if bool((offset <= last).any()) else offset
