"""Which stacks the kernels train as a whole: those of the paper and of BERT, GPT-2 and ViT, rotary positions or not.

All others go block by block; both compute the same.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.dropout import Dropout
from glassformer.layers.feed_forward import ACTIVATIONS, FeedForward
from glassformer.layers.mask import Mask
from glassformer.layers.norm import LayerNorm
from glassformer.native import abi
from glassformer.native.abi import TrainedLayer
from glassformer.native.ops import WHOLE_PANELS
from glassformer.native.training import StackSettings, can_train, trained_stack
from glassformer.taps import overheard, tracing

ACTIVATION_NUMBERS = {function: abi.ACTIVATIONS[name] for name, function in ACTIVATIONS.items()}
"""Number of each activation in the kernels."""

HEADS = 32
"""Widths of a head are multiples of this."""


def trained_as_a_whole(
    blocks: Sequence[Any],
    x: Float[Tensor, "batch length d_model"],
    mask: Mask | None,
    memory: Float[Tensor, "sentences source d_model"] | None,
    memory_mask: Mask | None,
) -> Float[Tensor, "batch length d_model"] | None:
    """What the blocks make of ``x``, with its gradient; None where they have to be asked one by one."""
    if not x.is_cpu or tracing() or not torch.is_grad_enabled() or not _fits(x, memory):
        return None
    described = [_described(block) for block in blocks]
    settings, weights = described[0][0], [weight for _, some in described for weight in some]
    present = [weight for weight in weights if weight is not None]
    if settings is None or any(other != settings for other, _ in described):
        return None
    if not (x.requires_grad or any(weight.requires_grad for weight in present)):
        return None
    if (memory is None) != ("cross_query" not in settings.parts) or not can_train(x, *present):
        return None
    rotary = blocks[0].self_attention.rotary
    angles = None if rotary is None else rotary.angles(x.size(1), x.device)
    seen = None if mask is None else mask.dense(x.size(1), x.size(1), x.device)
    memory_seen = None
    if memory is not None and memory_mask is not None:
        memory_seen = memory_mask.dense(x.size(1), memory.size(1), x.device)
    return trained_stack(settings, weights, x, seen, memory, memory_seen, angles)


def _fits(x: Tensor, memory: Tensor | None) -> bool:
    alike = memory is None or (memory.dtype == x.dtype and len(memory) == len(x) and memory.numel() > 0)
    return alike and x.size(-1) % WHOLE_PANELS == 0 and x.numel() > 0


def _described(block: Any) -> tuple[StackSettings | None, list[Tensor | None]]:
    """The same for all blocks of a stack, or None; and the weights in the order in which the settings name them."""
    around = (block.self_attention_norm, block.cross_attention_norm, block.feed_forward_norm)
    norms = {name: wrap for name, wrap in zip(TrainedLayer.NORMS, around, strict=True) if wrap is not None}
    own, cross, feed_forward = block.self_attention, block.cross_attention, block.feed_forward
    if any(overheard(module) for module in (block, own, cross, feed_forward, *norms.values()) if module is not None):
        return None, []
    attentions = [own] if cross is None else [own, cross]
    if cross is not None and cross.rotary is not None:
        return None, []
    plain = type(feed_forward) is FeedForward and feed_forward.activation in ACTIVATION_NUMBERS
    if not (plain and all(map(_plain_wrap, norms.values())) and all(map(_plain_attention, attentions))):
        return None, []
    linears = dict(zip(TrainedLayer.OWN, _projections(own), strict=True))
    if cross is not None:
        linears |= dict(zip(TrainedLayer.CROSS, _projections(cross), strict=True))
    linears |= {"inner": feed_forward.inner, "outer": feed_forward.outer}
    parts = {name: wrap.norm for name, wrap in norms.items()} | linears
    wraps, widths = list(norms.values()), feed_forward.inner.out_features
    alike = {(wrap.pre, wrap.norm.eps, _threshold(wrap.dropout)) for wrap in wraps}
    asked = {(attention.n_heads, _threshold(attention.dropout)) for attention in attentions}
    unscaled = any(wrap.norm.weight is None for wrap in wraps)
    if unscaled or widths % WHOLE_PANELS or len(alike) > 1 or len(asked) > 1:
        return None, []
    (pre, epsilon, threshold), (heads, attention_threshold) = alike.pop(), asked.pop()
    activation = ACTIVATION_NUMBERS[feed_forward.activation]
    turning = None if own.rotary is None else (own.rotary.d_head, own.rotary.theta)
    settings = StackSettings(
        heads, widths, epsilon, pre, threshold, attention_threshold, activation, tuple(parts), turning
    )
    return settings, [tensor for part in parts.values() for tensor in (part.weight, part.bias)]


def _projections(attention: MultiHeadAttention) -> tuple[nn.Linear, ...]:
    return attention.query, attention.key, attention.value, attention.output


def _plain_wrap(wrap: Any) -> bool:
    return type(wrap.norm) is LayerNorm and isinstance(wrap.dropout, Dropout)


def _plain_attention(attention: MultiHeadAttention) -> bool:
    """Keys, queries and values of one width, which all heads together have of the residual stream."""
    width = attention.output.out_features
    sizes = {projection.out_features for projection in _projections(attention)} | {attention.output.in_features}
    alike = sizes == {width} and attention.n_heads == attention.n_kv_heads and width // attention.n_heads % HEADS == 0
    return alike and attention.pattern is None and isinstance(attention.dropout, Dropout)


def _threshold(dropout: Dropout) -> int:
    return dropout.threshold if dropout.training else 0
