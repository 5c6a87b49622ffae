"""Prompt caching: the keys and values of a text that many prompts begin with, computed once."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer.layers.cache import BlockCache, KeyValueCache, StackCache
from glassformer.layers.ragged import PromptState, ragged
from glassformer.native.decoding import NativeGPT
from glassformer.native.execution import Execution


@dataclass(frozen=True)
class PromptCache:
    """The keys and values of ``ids``, as ``model`` computes them."""

    ids: list[int]
    memory: list[Any]
    """Keys and values of each layer, as the kernels store them or as a pair ``[1, heads, length, d_head]``."""
    form: str
    """Name of the form of the model that computed them (``form_of``)."""
    weights: list[Any]
    """State of the weights that computed them (``native.accelerated.weights_state``)."""

    @classmethod
    @torch.inference_mode()
    def of(cls, model: Any, precision: str, ids: list[int], weights: list[Any], device: torch.device) -> "PromptCache":
        memory: list[Any] = model.read(ids) if isinstance(model, NativeGPT) else _read(model, ids, device)
        return cls(ids, memory, form_of(model, precision), weights)

    def shared(self, source: Int[Tensor, "rows width"], lengths: Int[Tensor, " rows"]) -> int:
        """Number of leading tokens that all rows share with ``ids``."""
        width = min(len(self.ids), source.size(1), int(lengths.min()))
        same = (source[:, :width] == torch.tensor(self.ids[:width], device=source.device)).all(0)
        return int(same.long().cumprod(0).sum())


def form_of(model: Any, precision: str) -> str:
    return f"{type(model).__name__}, {precision}"


def _read(model: Any, ids: list[int], device: torch.device) -> list[tuple[Tensor, Tensor]]:
    cache = StackCache(model.config.n_layers)
    model.hidden(torch.tensor([ids], device=device), None, cache)
    own = [block.self_attention for block in cache]
    parts = [(one.keys, one.values) for one in own if one.keys is not None and one.values is not None]
    return [(keys[:, :, : len(ids)].clone(), values[:, :, : len(ids)].clone()) for keys, values in parts]


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
        if isinstance(self.model, NativeGPT):
            return self.model.begin(source, source_mask, prefix=self.kept.memory, shared=shared)
        begun = torch.full_like(lengths, shared)
        state = PromptState(begun, ragged(self._past(len(source), shared), begun), source)
        if source.size(1) > shared:
            self.model.step(source[:, shared:], state)
        state.lengths = lengths  # the rest of a shorter prompt is padding, which the next tokens replace
        for block in state.cache or ():
            block.self_attention.lengths = lengths  # type: ignore[attr-defined]
        return state

    def step(self, tokens: Int[Tensor, "rows new"], state: Any) -> Float[Tensor, "rows vocab"]:
        found: Tensor = self.model.step(tokens, state)
        return found

    def _past(self, rows: int, length: int) -> StackCache:
        """The first ``length`` tokens of the kept prompt, for each of ``rows``."""

        def of(kept: Tensor) -> Tensor:
            return kept[:, :, :length].expand(rows, -1, -1, -1)

        cache = StackCache(0)
        for keys, values in self.kept.memory:
            cache.append(BlockCache(KeyValueCache(of(keys), of(values), length)))
        return cache
