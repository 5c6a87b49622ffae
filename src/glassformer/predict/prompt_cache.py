"""Prompt caching: the keys and values of a text that many prompts begin with, computed once."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer.layers.cache import BlockCache, KeyValueCache, StackCache
from glassformer.layers.ragged import PromptState, ragged
from glassformer.models.gpt import GPT
from glassformer.native.accelerated import weights_state
from glassformer.native.decoding import Execution


@dataclass(frozen=True)
class PromptCache:
    """The keys and values of ``ids``, ``[1, heads, length, d_head]`` for each layer."""

    ids: list[int]
    keys: list[Float[Tensor, "1 heads length d_head"]]
    values: list[Float[Tensor, "1 heads length d_head"]]
    weights: list[Any]
    """State of the weights that computed them (``native.accelerated.weights_state``)."""

    @classmethod
    @torch.inference_mode()
    def of(cls, model: GPT, ids: list[int], device: torch.device) -> "PromptCache":
        weights, cache = weights_state(model), StackCache(model.config.n_layers)
        model.hidden(torch.tensor([ids], device=device), None, cache)
        own = [block.self_attention for block in cache]
        parts = [(one.keys, one.values) for one in own if one.keys is not None and one.values is not None]
        kept = [tuple(part[:, :, : len(ids)].clone() for part in pair) for pair in parts]
        return cls(ids, [keys for keys, _ in kept], [values for _, values in kept], weights)

    def shared(self, source: Int[Tensor, "rows width"], lengths: Int[Tensor, " rows"]) -> int:
        """How many tokens all rows have in common with ``ids`` at their beginning."""
        width = min(len(self.ids), source.size(1), int(lengths.min()))
        same = (source[:, :width] == torch.tensor(self.ids[:width], device=source.device)).all(0)
        return int(same.long().cumprod(0).sum())

    def past(self, rows: int, length: int) -> StackCache:
        """The first ``length`` tokens, for each of ``rows``."""

        def of(kept: Tensor) -> Tensor:
            return kept[:, :, :length].expand(rows, -1, -1, -1)

        cache = StackCache(0)
        for keys, values in zip(self.keys, self.values, strict=True):
            cache.append(BlockCache(KeyValueCache(of(keys), of(values), length)))
        return cache


@dataclass(frozen=True)
class WithPromptCache:
    """A model that reads a prompt from where ``kept`` ends."""

    model: Any
    kept: PromptCache

    @property
    def execution(self) -> Execution:
        return Execution.of(self.model)

    def __call__(self, source: Tensor, target: Tensor, source_mask: Tensor) -> Tensor:
        found: Tensor = self.model(source, target, source_mask)
        return found

    def begin(
        self, source: Int[Tensor, "rows prompt"], source_mask: Bool[Tensor, "rows prompt"], use_cache: bool = True
    ) -> Any:
        lengths = source_mask.sum(1)
        shared = self.kept.shared(source, lengths) if use_cache else 0
        if not shared:
            return self.model.begin(source, source_mask, use_cache)
        begun = torch.full_like(lengths, shared)
        cache = ragged(self.kept.past(len(source), shared), begun)
        state = PromptState(begun, cache, source)
        if source.size(1) > shared:
            self.model.step(source[:, shared:], state)
        state.lengths = lengths  # what stands behind a shorter prompt is padding, which the next tokens replace
        for block in cache:
            block.self_attention.lengths = lengths  # type: ignore[attr-defined]
        return state

    def step(self, tokens: Int[Tensor, "rows new"], state: Any) -> Float[Tensor, "rows vocab"]:
        found: Tensor = self.model.step(tokens, state)
        return found
