"""Forms of modules that compute faster, and copies of a model with them: same parameters, names and hooks."""

import copy
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn

from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.block import Block, Stack
from glassformer.layers.dropout import Dropout
from glassformer.layers.embedding import OutputProjection, TokenEmbedding
from glassformer.layers.feed_forward import FeedForward
from glassformer.layers.position import Rotary
from glassformer.native.blocks import heads_of, norm_settings
from glassformer.native.embedding import NativeEmbedding, NativeOutputProjection
from glassformer.native.ops import (
    ACTIVATIONS,
    NativeAttention,
    NativeDropout,
    NativeLinear,
    NativeRotary,
)
from glassformer.native.stack import NativeStack, StackSettings, parts_of
from glassformer.taps import all_hooks

OPERATION_FORMS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: NativeLinear,
    Dropout: NativeDropout,
    MultiHeadAttention: NativeAttention,
    Rotary: NativeRotary,
}
FUSED_FORMS: dict[type[nn.Module], type[nn.Module]] = {
    Stack: NativeStack,
    TokenEmbedding: NativeEmbedding,
    OutputProjection: NativeOutputProjection,
}


def settings_of(block: Block, final_norm: nn.Module | None = None) -> StackSettings:
    """Settings of the layers of a stack, which are all like ``block``, and of its final norm."""
    attention, feed_forward, wrap = block.self_attention, cast(FeedForward, block.feed_forward), block.feed_forward_norm
    heads = heads_of(attention)
    return StackSettings(
        heads=heads[:2],
        widths=heads[2:],
        d_ff=feed_forward.inner.out_features,
        norm=cast(tuple[float, bool], norm_settings(wrap.norm)),
        pre_norm=wrap.pre,
        activation=ACTIVATIONS[feed_forward.activation],
        parts=tuple(name for name, _ in parts_of(block)),
        rotary=None if attention.rotary is None else (attention.rotary.d_head, attention.rotary.theta),
        final_norm=norm_settings(final_norm),
    )


def native_form(module: nn.Module, fused: bool = False) -> nn.Module | None:
    """Native counterpart of ``module`` with the same parameters and hooks, or None.

    ``fused``: True if one kernel computes the whole module.
    """
    form = FUSED_FORMS.get(type(module)) if fused else OPERATION_FORMS.get(type(module))
    if form is None or (form is NativeLinear and cast(nn.Linear, module).weight.dtype != torch.float32):
        return None
    if isinstance(module, MultiHeadAttention) and type(module.dropout) is not Dropout:
        return None
    twin = shallow_copy(module)
    twin.__class__ = form
    if isinstance(twin, NativeStack):
        twin.settings = settings_of(cast(Block, twin.layers[0]), twin.final_norm)
        twin.hooks = all_hooks(*twin.children())
    return twin


def swap(module: nn.Module, form: Callable[[nn.Module], nn.Module | None]) -> Any:
    """``module`` with every module that has another ``form`` in that form; parameters and hooks are shared."""
    known: dict[int, nn.Module] = {}

    def swapped(module: nn.Module) -> nn.Module:
        if id(module) not in known:
            children = {name: None if child is None else swapped(child) for name, child in module._modules.items()}
            twin = form(module)
            if twin is None and any(children[name] is not child for name, child in module._modules.items()):
                twin = shallow_copy(module)
            if twin is not None:
                twin._modules = children
            known[id(module)] = module if twin is None else twin
        return known[id(module)]

    return swapped(module)


def shallow_copy(module: nn.Module) -> nn.Module:
    """A module of the same parameters and hooks, those that are registered later included."""
    twin = copy.copy(module)
    if twin._is_full_backward_hook is None:  # set in ``module`` alone when its first backward hook is registered
        twin._is_full_backward_hook = True
    return twin


def blank(kind: type[nn.Module]) -> Any:
    """An instance of ``kind`` without state, for copies of a form that are modules of the class it stands for."""
    return kind.__new__(kind)


def compiled(stack: Stack) -> Stack:
    """A stack of the same blocks that ``torch.compile`` computes; batches of any shape share its code."""
    twin = cast(Stack, shallow_copy(stack))
    twin.compile(dynamic=True)
    return twin
