"""Blocks that the kernels implement: exactly these classes, since a subclass may compute something else."""

from typing import cast

from torch import nn

from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.block import AddNorm, Block, Stack
from glassformer.layers.feed_forward import FeedForward, GatedFeedForward
from glassformer.layers.norm import LayerNorm, RMSNorm
from glassformer.layers.position import Rotary
from glassformer.native.ops import ACTIVATIONS

Classes = tuple[type[nn.Module], ...]


def blocks_of(stack: Stack) -> list[Block]:
    return [cast(Block, block) for block in stack.layers]


def unsupported_blocks(stack: Stack, dropouts: Classes) -> str | None:
    """Reason why the kernels do not know the blocks of ``stack``, or None. ``dropouts``: known classes of dropout."""
    if type(stack) is not Stack or any(type(block) is not Block for block in stack.layers):
        return "another class of blocks"
    if not len(stack.layers):
        return "no layers"
    return next(filter(None, (_unsupported_block(block, dropouts) for block in blocks_of(stack))), None)


def unsupported_class(module: nn.Module, known: Classes) -> str | None:
    return None if type(module) in known else f"no kernel for {type(module).__name__}"


def unsupported_norm(norm: nn.Module) -> str | None:
    if reason := unsupported_class(norm, (LayerNorm, RMSNorm)):
        return reason
    if norm.weight is None:
        return "a normalization without a weight"
    return "a normalization without an epsilon" if norm.eps is None else None


def norm_settings(norm: nn.Module | None) -> tuple[float, bool] | None:
    """Epsilon of a norm, and whether it is RMSNorm; None if the kernels do not know it."""
    if norm is None or unsupported_norm(norm):
        return None
    return cast(float, norm.eps), isinstance(norm, RMSNorm)


def heads_of(attention: MultiHeadAttention) -> tuple[int, int, int, int]:
    """Numbers of heads of queries and of keys, and d_k and d_v."""
    n_heads, n_kv_heads = attention.n_heads, attention.n_kv_heads
    return n_heads, n_kv_heads, attention.query.out_features // n_heads, attention.value.out_features // n_kv_heads


def _unsupported_block(block: Block, dropouts: Classes) -> str | None:
    own, cross, feed_forward = block.self_attention, block.cross_attention, block.feed_forward
    for wrap in (block.self_attention_norm, block.cross_attention_norm, block.feed_forward_norm):
        if wrap is None:
            continue
        reason = unsupported_class(wrap, (AddNorm,)) or unsupported_class(wrap.dropout, dropouts)
        if reason := reason or unsupported_norm(wrap.norm):
            return reason
        if wrap.pre != block.feed_forward_norm.pre:
            return "a block in both orders of normalization"
    for attention in [own] if cross is None else [own, cross]:
        if reason := _unsupported_attention(attention, dropouts):
            return reason
    if cross is not None and cross.rotary is not None:
        return "rotary positions between encoder and decoder"
    if cross is not None and heads_of(cross) != heads_of(own):
        return "other heads in cross-attention than in self-attention"
    if reason := unsupported_class(feed_forward, (FeedForward, GatedFeedForward)):
        return reason
    if feed_forward.activation not in ACTIVATIONS:
        return f"the activation {getattr(feed_forward.activation, '__name__', feed_forward.activation)}"
    return _unsupported_linear(*feed_forward.children())


def _unsupported_attention(module: MultiHeadAttention, dropouts: Classes) -> str | None:
    if reason := unsupported_class(module, (MultiHeadAttention,)) or unsupported_class(module.dropout, dropouts):
        return reason
    if module.pattern is not None:
        return "a sparse pattern"
    if module.rotary is not None and (reason := unsupported_class(module.rotary, (Rotary,))):
        return reason
    if module.rotary is not None and module.rotary.d_head != heads_of(module)[2]:
        return "rotary positions of another width than d_k"
    return _unsupported_linear(module.query, module.key, module.value, module.output)


def _unsupported_linear(*modules: nn.Module) -> str | None:
    return next(filter(None, (unsupported_class(module, (nn.Linear,)) for module in modules)), None)
