"""Models that can be decoded, alone or several as one, and batches of sentences to decode.

Rows that have ended stay in a batch for a while, idle: the others are not copied, and products keep their shapes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from glassformer.errors import DataError
from glassformer.generate.candidates import log_softmax
from glassformer.generate.config import DecodingConfig
from glassformer.native.execution import Execution
from glassformer.text import Tokenizer


class State(Protocol):
    """State of decoding between steps: a past for every hypothesis, a memory for every sentence."""

    def select(self, rows: Tensor) -> None:
        """Keep these hypotheses, in this order."""

    def select_sentences(self, sentences: Tensor) -> None:
        """Keep these sentences, in this order."""


class Decodable(Protocol):
    """``begin`` reads the sources once; each ``step`` gives the logits after the newest tokens, which a search may
    overwrite; a call gives all. Its engine may have properties (``native.execution.Execution``)."""

    def __call__(self, source: Tensor, target: Tensor, source_mask: Tensor) -> Tensor: ...

    def begin(self, source: Tensor, source_mask: Tensor, use_cache: bool = True) -> Any: ...

    def step(self, tokens: Tensor, state: Any) -> Tensor: ...


@dataclass
class EnsembleState:
    """One state for each member."""

    members: list[State]

    def select(self, rows: Tensor) -> None:
        for state in self.members:
            state.select(rows)

    def select_sentences(self, sentences: Tensor) -> None:
        for state in self.members:
            state.select_sentences(sentences)


class Ensemble:
    """The mean of the members' probabilities at every step."""

    def __init__(self, models: Sequence[Decodable]):
        self.models = models
        members = [Execution.of(model) for model in models]
        limits = [one.max_source_tokens for one in members if one.max_source_tokens is not None]
        in_threads = all(one.in_threads for one in members)
        self.execution = Execution(members[0].search_kernels, in_threads, min(limits, default=None))

    def begin(self, source: Tensor, source_mask: Tensor, use_cache: bool = True) -> EnsembleState:
        return EnsembleState([model.begin(source, source_mask, use_cache) for model in self.models])

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        """Log-probabilities, which are logits of themselves."""
        return _mean([model.step(tokens, one) for model, one in zip(self.models, state.members, strict=True)])

    def __call__(self, source: Tensor, target: Tensor, source_mask: Tensor) -> Tensor:
        return _mean([model(source, target, source_mask) for model in self.models])


def _mean(logits: list[Tensor]) -> Tensor:
    """Logarithm of the mean of the probabilities."""
    return torch.stack([log_softmax(one) for one in logits]).logsumexp(0) - math.log(len(logits))


@dataclass(frozen=True)
class SpecialTokens:
    """Ids that mean something to a search."""

    pad: int
    start: int
    end: int
    bias: Mapping[int, float] = field(default_factory=dict)
    """Biases added to the logits, by token id; −∞ forbids a token."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, bias: Mapping[int, float] | None = None) -> Self:
        return cls(tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id, bias or {})


@dataclass(frozen=True)
class Prompt:
    """Sentences decoded together. Lengths count tokens without start and end."""

    source: Int[Tensor, "batch source"]
    source_mask: Bool[Tensor, "batch source"]
    prefixes: list[list[int]]
    min_lengths: list[int]
    max_lengths: list[int]
    symbols: SpecialTokens
    first: Int[Tensor, " batch"] | None = None
    """Token that the first step of each row reads: the last of a text that is continued; None is the start token."""
    before: list[list[int]] | None = None
    """All that stands before what is generated, where that is text of the same kind."""
    stopped: Callable[[int, list[int]], bool] | None = None
    """Function of a row and its tokens: True if a stop string ends the text there."""

    @property
    def beginnings(self) -> Int[Tensor, " batch"]:
        """The token that each sentence's first step reads."""
        start = torch.full((len(self),), self.symbols.start, device=self.source.device)
        return start if self.first is None else self.first

    @property
    def seeds(self) -> list[list[int]]:
        """Number that makes the random numbers of one sentence differ from another's."""
        if self.before is not None:
            return self.before
        lengths = self.source_mask.sum(1).tolist()
        return [ids[:length] for ids, length in zip(self.source.tolist(), lengths, strict=True)]

    def __len__(self) -> int:
        return self.source.size(0)


def build_prompt(
    sources: Sequence[Sequence[int]],
    symbols: SpecialTokens,
    config: DecodingConfig,
    prefixes: Sequence[Sequence[int]] | None = None,
    device: torch.device | None = None,
    longest_target: int | None = None,
) -> Prompt:
    """Pad ``sources`` (which end with the end symbol) to one tensor and work out each sentence's limits.

    ``longest_target`` is the model's own limit, in tokens without start and end.
    """
    source, visible = padded(sources, symbols.pad)
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


def padded(rows: Sequence[Sequence[int]], pad: int) -> tuple[Int[Tensor, "rows width"], Bool[Tensor, "rows width"]]:
    """``rows`` as one tensor, and True where they hold a token."""
    ids = torch.full((len(rows), max(map(len, rows))), pad, dtype=torch.long)
    visible = torch.zeros_like(ids, dtype=torch.bool)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = torch.tensor(row, dtype=torch.long)
        visible[place, : len(row)] = True
    return ids, visible


def compacted_size(count: int) -> int:
    """Number of rows to continue with when ``count`` are needed: the next of 1 … 8, 10, 12, 14, 16, 20, 24, 28, 32 …

    Dropping each row as it ends would copy all that is kept of the others every time, and make every product one of a
    new shape, which on a CPU costs it half a millisecond.
    """
    step = 1 << max(0, (count - 1).bit_length() - 3)
    return -(-count // step) * step


def keep(needed: Tensor) -> Tensor | None:
    """Rows of the compacted batch, in order: the ``needed`` ones [rows], and idle ones up to ``compacted_size``.

    None if the batch stays as it is.
    """
    if (rows := needed.size(0)) == 1:
        return None
    count = int(needed.sum())
    if compacted_size(count) >= rows:
        return None
    idle = (~needed).nonzero().squeeze(1)[: compacted_size(count) - count]
    kept = needed.clone()
    kept[idle] = True
    return kept.nonzero().squeeze(1)
