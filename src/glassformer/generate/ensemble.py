"""Several models with one vocabulary decoded as one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glassformer.generate.candidates import log_softmax
from glassformer.generate.protocol import Decodable, State
from glassformer.native.execution import Execution


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
