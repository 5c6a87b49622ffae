"""What a model must offer to be decoded, and the sentences that are decoded together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from glassformer.config import DataError
from glassformer.generate.config import DecodingConfig


class State(Protocol):
    """What decoding carries from step to step: a past for every hypothesis, a memory for every sentence."""

    def select(self, rows: Tensor) -> None:
        """Keep these hypotheses, in this order."""

    def select_sentences(self, sentences: Tensor) -> None:
        """Keep these sentences, in this order."""


class Decodable(Protocol):
    """``begin`` reads the sources once; each ``step`` gives the logits after the newest tokens, which a search may
    overwrite; a call gives all."""

    def __call__(self, source: Tensor, target: Tensor, source_mask: Tensor) -> Tensor: ...

    def begin(self, source: Tensor, source_mask: Tensor, use_cache: bool = True) -> Any: ...

    def step(self, tokens: Tensor, state: Any) -> Tensor: ...


@dataclass(frozen=True)
class Symbols:
    """Ids that mean something to a search."""

    pad: int
    start: int
    end: int


@dataclass(frozen=True)
class Prompt:
    """Sentences decoded together. Lengths count tokens without start and end."""

    source: Int[Tensor, "batch source"]
    source_mask: Bool[Tensor, "batch source"]
    prefixes: list[list[int]]
    min_lengths: list[int]
    max_lengths: list[int]
    symbols: Symbols

    def __len__(self) -> int:
        return self.source.size(0)


def build_prompt(
    sources: Sequence[Sequence[int]],
    symbols: Symbols,
    config: DecodingConfig,
    prefixes: Sequence[Sequence[int]] | None = None,
    device: torch.device | None = None,
    longest_target: int | None = None,
) -> Prompt:
    """Pad ``sources`` (which end with the end symbol) to one tensor and work out each sentence's limits.

    ``longest_target`` is the model's own limit, in tokens without start and end.
    """
    longest = max(len(ids) for ids in sources)
    source = torch.full((len(sources), longest), symbols.pad, dtype=torch.long)
    visible = torch.zeros_like(source, dtype=torch.bool)
    for row, ids in enumerate(sources):
        source[row, : len(ids)] = torch.tensor(ids, dtype=torch.long)
        visible[row, : len(ids)] = True
    maxima = [config.max_length or len(ids) - 1 + config.max_extra for ids in sources]
    if longest_target is not None:
        maxima = [min(maximum, longest_target) for maximum in maxima]
    forced = [list(prefix) for prefix in prefixes] if prefixes else [[] for _ in sources]
    for prefix, maximum in zip(forced, maxima, strict=True):
        if len(prefix) > maximum:
            raise DataError(
                f"a forced prefix of {len(prefix)} tokens is longer than the limit of {maximum}; shorten it or raise "
                "max_length or max_extra"
            )
    minima = [min(config.min_length, maximum) for maximum in maxima]
    return Prompt(source.to(device), visible.to(device), forced, minima, maxima, symbols)
