"""Caches of rows with different lengths: the index of a key in the cache is its position.

New keys and values of a row overwrite the padding after its prompt, so no row depends on another.
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
    """``length`` is at least that of the longest row; more, if the longest row has left."""

    lengths: Int[Tensor, " rows"] = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))

    @property
    def offset(self) -> Offset:
        return self.lengths

    def append(self, keys: Tensor, values: Tensor, with_capacity: bool = False) -> tuple[Tensor, Tensor]:
        begin, end = self.length, self.length + keys.size(2)
        self.keys, self.values = self._grown(self.keys, keys, end), self._grown(self.values, values, end)
        positions = self.lengths[:, None] + torch.arange(keys.size(2), device=keys.device)
        rows = torch.arange(len(positions), device=keys.device)[:, None]
        self.keys[rows, :, positions] = keys.transpose(1, 2)
        self.values[rows, :, positions] = values.transpose(1, 2)
        self.length, self.lengths = end, self.lengths + keys.size(2)
        return self._readable(with_capacity and begin > 0)

    def select(self, rows: Tensor) -> None:
        super().select(rows)
        self.lengths = self.lengths[rows]

    def replace(self, rows: Tensor, by: Tensor) -> None:
        super().replace(rows, by)
        self.lengths = self.lengths.index_copy(0, rows, self.lengths[by])


def ragged(cache: StackCache, lengths: Int[Tensor, " rows"]) -> StackCache:
    """Convert ``cache`` after padded prompts; row i has ``lengths[i]`` tokens."""
    for block in cache:
        own = block.self_attention
        block.self_attention = RaggedCache(own.keys, own.values, own.length, lengths)
    return cache


@dataclass
class PromptState:
    """State of decoding a language model between steps: keys and values of each hypothesis, prompt included."""

    lengths: Int[Tensor, " rows"]
    """Tokens in the cache."""
    cache: StackCache | None
    tokens: Int[Tensor, "rows capacity"]
    """The tokens; only without a cache, when every step computes all of them again."""

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keep these hypotheses, in this order."""
        self.lengths = self.lengths[rows]
        if self.cache is None:
            self.tokens = self.tokens[rows]
        else:
            self.cache.select(rows)

    def select_sentences(self, sentences: Int[Tensor, " sentences"]) -> None:
        """Do nothing: each prompt belongs to its hypotheses."""

    def extended(self, tokens: Int[Tensor, "rows new"]) -> tuple[Tensor, Tensor]:
        """Append ``tokens`` to each row without a cache; return the rows and the mask of their tokens."""
        positions = self.lengths[:, None] + torch.arange(tokens.size(1), device=tokens.device)
        self.lengths = self.lengths + tokens.size(1)
        wider = max(0, end_of(self.lengths, 0) - self.tokens.size(1))
        self.tokens = F.pad(self.tokens, (0, wider)).scatter(1, positions, tokens)
        return self.tokens, torch.arange(self.tokens.size(1), device=tokens.device) < self.lengths[:, None]


def within_table(position: Learned, offset: Int[Tensor, " rows"], length: int) -> Int[Tensor, " rows"]:
    """``offset``, moved back in rows without ``length`` free positions, if another row has free ones.

    Such rows are finished: the limits of a search stop all others before.
    """
    last = position.n_positions - length
    return offset.clamp(max=last) if bool((offset <= last).any()) else offset
