"""Attention masks, in one convention: boolean, True = may be seen, broadcastable to ``batch heads query key``.

Section 3.2.3 prevents leftward information flow by "setting to −∞ all values which correspond to illegal connections".
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from glassformer.errors import ConfigError
from glassformer.layers.position import Offset, positions_from
from glassformer.layers.sparse import Pattern

Sentences = Bool[Tensor, "_ _"] | Int[Tensor, "_ _"]
"""True for a token; in rows of several sentences the number of its sentence, from 1. 0 is padding."""

if TYPE_CHECKING:
    Size = int
else:
    Size = int | torch.SymInt  # symbolic while a graph is exported


@dataclass(frozen=True)
class Mask:
    """The keys that each query may see: those that satisfy every condition.

    (A padded query may see padded keys: its output is never read.)
    """

    keys: Sentences | None = None
    """Tokens of the keys. Padding is not seen; where sentences are numbered, a query sees its own sentence only."""
    queries: Sentences | None = None
    """The sentence numbers of the queries, where those of the keys are numbers."""
    causal: bool = False
    """True forbids keys after the query."""
    offset: Offset = 0
    """Position among the keys of the first query; as many keys are cached before it."""
    pattern: Pattern | None = None
    allowed: Bool[Tensor, "#batch #heads #query #key"] | None = None
    """Any further condition in dense form."""
    _dense: dict[tuple[Any, ...], Tensor | None] = field(default_factory=dict, init=False, compare=False, repr=False)
    _variants: dict[int, "Mask"] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self._numbered and (self.queries is None or self.queries.dtype == torch.bool):
            raise ValueError("the keys' sentences are numbered and the queries' are not; number both")

    def dense(
        self, query: Size, key: Size, device: torch.device | None = None
    ) -> Bool[Tensor, "#batch #heads #query #key"] | None:
        """The mask as one boolean tensor; None if every key may be seen. Made once for all layers of a pass."""
        size = query, key, device
        if torch.compiler.is_compiling():  # symbolic lengths cannot be dictionary keys
            return self._make(*size)
        if size not in self._dense:
            self._dense[size] = self._make(*size)
        return self._dense[size]

    def with_pattern(self, pattern: Pattern | None) -> "Mask":
        """This mask with another pattern, or with none; one object for all layers of a pass, with one dense form."""
        if torch.compiler.is_compiling():
            return replace(self, pattern=pattern)
        if id(pattern) not in self._variants:
            self._variants[id(pattern)] = replace(self, pattern=pattern)
        return self._variants[id(pattern)]

    def _make(
        self, query: Size, key: Size, device: torch.device | None
    ) -> Bool[Tensor, "#batch #heads #query #key"] | None:
        conditions = (self._padding(), self._order(query, key, device), self._sparse(query, key, device), self.allowed)
        dense: Tensor | None = None
        for condition in conditions:
            if condition is not None:
                dense = condition if dense is None else dense & condition
        return dense

    @property
    def at_start(self) -> bool:
        """True if no key is before the first query."""
        return isinstance(self.offset, int) and self.offset == 0

    def only_causal(self, query: int, key: int) -> bool:
        """True if the mask is the lower triangle of a square and nothing else: fused attention has a flag for that."""
        others = (self.keys, self.pattern, self.allowed)
        return self.causal and self.at_start and query == key and all(one is None for one in others)

    @property
    def only_sentences(self) -> bool:
        """True if sentences are numbered, and only these and the order of the tokens hide keys."""
        return self._numbered and self.at_start and self.pattern is None and self.allowed is None

    def _padding(self) -> Bool[Tensor, "batch 1 #query key"] | None:
        if self.keys is None:
            return None
        if self.keys.dtype == torch.bool:
            return self.keys[:, None, None, :]
        assert self.queries is not None
        return (self.queries[:, :, None] == self.keys[:, None, :])[:, None]

    def _order(self, query: Size, key: Size, device: torch.device | None) -> Bool[Tensor, "#rows 1 query key"] | None:
        if not self.causal:
            return None
        positions = positions_from(self.offset, query, device)
        visible = torch.arange(key, device=device) <= positions[..., None]
        return visible[:, None] if visible.dim() == 3 else visible[None, None]

    def _sparse(self, query: Size, key: Size, device: torch.device | None) -> Bool[Tensor, "#rows 1 query key"] | None:
        if self.pattern is None:
            return None
        offsets = [self.offset] if isinstance(self.offset, int) else self.offset.tolist()
        dense = {
            offset: F.pad(self.pattern.mask(query, offset + query, device), (0, key - offset - query), value=False)
            for offset in set(offsets)
        }
        return torch.cat([dense[offset] for offset in offsets])

    @property
    def _numbered(self) -> bool:
        return self.keys is not None and self.keys.dtype != torch.bool


def causal_mask(offset: Offset = 0, sentences: Sentences | None = None) -> Mask:
    """Each query sees itself and what is before it, in its own sentence where sentences are numbered.

    Padding behind the last token needs no mask of its own: no token sees what is behind it.
    """
    numbered = sentences is not None and sentences.dtype != torch.bool
    return Mask(sentences, sentences, causal=True, offset=offset) if numbered else Mask(causal=True, offset=offset)


def positions_within(sentences: Int[Tensor, "batch length"]) -> Int[Tensor, "batch length"]:
    """The position of each token in its own sentence, from 0."""
    index = torch.arange(sentences.size(1), device=sentences.device).expand_as(sentences)
    begins = sentences.diff(dim=1, prepend=sentences.new_full((sentences.size(0), 1), -1)) != 0
    return index - index.where(begins, 0).cummax(1).values


def single_sentences(sentences: Sentences) -> Bool[Tensor, "_ _"]:
    """Mask of the tokens of rows with one sentence each.

    Raises ``ConfigError`` for a row with a second sentence, or with padding before its first.
    """
    if len(rows := (sentences.long().diff(dim=1) > 0).any(1).nonzero()):
        raise ConfigError(f"row {rows[0].item()} is not one sentence followed by padding; set data.row_tokens=0")
    return sentences != 0
