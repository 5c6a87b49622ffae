"""What a model must offer to be decoded, and the sentences that are decoded together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer.config import DataError
from glassformer.generate.config import DecodingConfig

GROUP = 32
"""Entries of the vocabulary that ``best`` looks at together; a power of two."""

SUMMED, ROWS_AT_ONCE = 64, 32
"""Exponentials that ``log_sum`` adds up first, and rows it has them of at a time: half a megabyte for 8,000 entries."""


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
            raise DataError(f"a forced prefix of {len(prefix)} tokens is longer than the limit of {maximum}")
    minima = [min(config.min_length, maximum) for maximum in maxima]
    return Prompt(source.to(device), visible.to(device), forced, minima, maxima, symbols)


def log_sum(logits: Float[Tensor, "rows vocab"]) -> Float[Tensor, " rows"]:
    """What a logit loses to become a log-probability; in float32 at least.

    In bfloat16 exponentials are taken of some rows at a time, so that they never leave the cache, and groups of them
    are summed before their sums are, so that what rounding does to each sum cancels out.
    """
    if logits.dtype != torch.bfloat16:
        return logits.logsumexp(-1)
    if logits.size(1) % SUMMED:
        return logits.float().logsumexp(-1)
    sums = logits.new_empty(logits.size(0), dtype=torch.float32)
    terms = torch.empty_like(logits[:ROWS_AT_ONCE])
    for start in range(0, logits.size(0), ROWS_AT_ONCE):
        some = logits[start : start + ROWS_AT_ONCE]
        grouped = torch.exp(some, out=terms[: len(some)]).unflatten(1, (-1, SUMMED))
        torch.sum(grouped.sum(-1).float(), -1, out=sums[start : start + ROWS_AT_ONCE])
    result = sums.log_()
    return result if result.isfinite().all() else logits.float().logsumexp(-1)


def kept_size(count: int) -> int:
    """How many rows to go on with when ``count`` are still needed: the next of 1 … 8, 10, 12, 14, 16, 20, 24, 28, 32 …

    Dropping each row as it ends would copy all that is kept of the others every time, and make every product one of a
    new shape, which on a CPU costs it half a millisecond.
    """
    step = 1 << max(0, (count - 1).bit_length() - 3)
    return -(-count // step) * step


def keep(needed: Tensor) -> Tensor | None:
    """The rows to go on with when only ``needed`` [rows] are still of use: those, and idle ones up to ``kept_size``.

    None when all are kept. They stay in their order.
    """
    rows, count = needed.size(0), int(needed.sum())
    if kept_size(count) >= rows:
        return None
    idle = (~needed).nonzero().squeeze(1)[: kept_size(count) - count]
    kept = needed.clone()
    kept[idle] = True
    return kept.nonzero().squeeze(1)


def best(logits: Float[Tensor, "rows vocab"], k: int) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
    """The ``k`` greatest of each row and where they are.

    Entry i belongs to group i mod ``groups``, and only the groups with the k greatest maxima are looked at: on a CPU a
    few passes of vector instructions instead of a partial sort.
    """
    groups = logits.size(1) // GROUP
    if groups <= k:
        return logits.topk(min(k, logits.size(1)), dim=-1)
    maxima = logits[:, : groups * GROUP]
    while maxima.size(1) > groups:
        maxima = torch.maximum(*maxima.chunk(2, dim=1))
    chosen = maxima.topk(k, dim=-1).indices
    members = (chosen[:, :, None] + torch.arange(0, groups * GROUP, groups, device=logits.device)).flatten(1)
    tail = torch.arange(groups * GROUP, logits.size(1), device=logits.device).expand(len(logits), -1)
    candidates = torch.cat([members, tail], dim=1)
    values, place = logits.gather(1, candidates).topk(k, dim=-1)
    return values, candidates.gather(1, place)


def log_softmax(logits: Float[Tensor, "*rows vocab"]) -> Float[Tensor, "*rows vocab"]:
    """In float32 at least, so that bfloat16 logits give usable scores."""
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
