"""Attention rollout.

Abnar & Zuidema 2020, "Quantifying Attention Flow in Transformers" (arXiv:2005.00928), section 3.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.errors import ConfigError
from glassformer.explain.formula.dataflow import stacks
from glassformer.explain.trace import Trace


@dataclass(frozen=True)
class Rollout:
    """``layers[n]``: how much of each input token (key) the rollout finds at each position (query) after layer n."""

    stack: str
    layers: Float[Tensor, "layer batch query key"]

    @property
    def last(self) -> Float[Tensor, "batch query key"]:
        """Rollout after the last layer."""
        return self.layers[-1]


def attention_rollout(trace: Trace, stack: Literal["encoder", "decoder", ""] = "") -> Rollout:
    """Equation 1 of the paper over the self-attention of ``stack``: Ã_n = A_n Ã_{n−1} with A_n = ½ W_n + ½ I.

    W_n are the weights, their mean over heads; ½ I stands for the residual connection. Rows are queries and sum to 1.
    It takes every head for equal and the identity for half of everything, and knows neither values, W_O, feed-forward
    nor layer normalization; that of the decoder tells nothing of the source, which enters by cross-attention.
    Without ``stack`` it is the encoder's, or that of the only stack.
    """
    known = stacks(trace.model)
    stack = stack or ("decoder" if known == ["decoder"] else "encoder")
    if stack not in known:
        raise ConfigError(
            f"rollout follows self-attention, and {type(trace.model).__name__} has none in its {stack}; "
            "it works with encoder_decoder, gpt, bert, vit and series"
        )
    reached, layers = None, []
    for number in range(len(getattr(trace.model, stack).layers)):
        name = f"{stack}.layers.{number}.self_attention.weights"
        weights = trace[name].mean(1)
        if weights.size(-2) != weights.size(-1):
            raise ConfigError(
                f"{name} holds {weights.size(-2)} queries for {weights.size(-1)} keys, as in a search with a cache; "
                "trace the whole target at once"
            )
        identity = torch.eye(weights.size(-1), dtype=weights.dtype, device=weights.device)
        weights = torch.where((weights == 0).all(-1, keepdim=True), identity, weights)  # what sees nothing stays itself
        step = (weights + identity) / 2
        reached = step if reached is None else step @ reached
        layers.append(reached)
    return Rollout(stack, torch.stack(layers))
