"""A whole stack of layers forwards and backwards in the kernels, as one function of its input and its weights."""

import itertools
from collections.abc import Sequence
from ctypes import c_int64
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from glassformer.native.abi import Mask, TrainedLayer, TrainedStack
from glassformer.native.library import kernels
from glassformer.native.ops import kernels_for, random_seed, turning_tables


@dataclass(frozen=True)
class StackSettings:
    """What a stack is beside its weights. Thresholds: of 256, how many values of a byte drop their element."""

    heads: int
    d_ff: int
    epsilon: float
    pre_norm: bool
    threshold: int
    attention_threshold: int
    activation: int
    """Number in ``abi.ACTIVATIONS``."""
    parts: tuple[str, ...]
    """Of a layer, as they follow one another in the weights."""
    turning: tuple[int, float] | None = None
    """Width and slowness of rotary positions."""


def can_train(x: Tensor, *others: Tensor) -> bool:
    """Whether the kernels compute with these tensors on this processor."""
    made = kernels_for(x, *others, low=True)
    alike = all(other.dtype == x.dtype and other.is_contiguous() for other in others)
    return made is not None and alike and (x.dtype == torch.float32 or made.bfloat16)


def trained_stack(
    settings: StackSettings,
    weights: Sequence[Tensor | None],
    x: Float[Tensor, "batch length d_model"],
    mask: Bool[Tensor, "#batch #heads #length #length"] | None,
    memory: Float[Tensor, "batch source d_model"] | None,
    memory_mask: Bool[Tensor, "#batch #heads #length #source"] | None,
    angles: Float[Tensor, "length pairs"] | None,
) -> Float[Tensor, "batch length d_model"]:
    """``weights``: weight and bias (or None) of each of ``settings.parts``, layer by layer; ``angles``: of rotary
    positions.

    What stands behind the last position that ``mask`` (for ``memory``: ``memory_mask``) lets any other see is padding:
    nothing is computed for it, and its result is 0.
    """
    turns: tuple[Tensor, ...] = ()
    if angles is not None:
        cosines, sines = turning_tables(angles)
        turns = cosines, sines, -sines  # the last turn back
    return _Stack.apply(settings, mask, memory_mask, turns, x, memory, *weights)


class _Stack(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        settings: StackSettings,
        mask: Tensor | None,
        memory_mask: Tensor | None,
        turns: tuple[Tensor, ...],
        x: Tensor,
        memory: Tensor | None,
        *weights: Tensor | None,
    ) -> Tensor:
        x, memory = x.contiguous(), None if memory is None else memory.contiguous()
        ctx.settings, ctx.turns = settings, turns
        ctx.shape, ctx.dtype = x.shape, x.dtype
        ctx.memory_shape = None if memory is None else memory.shape
        ctx.seed = random_seed() if settings.threshold or settings.attention_threshold else 0
        result, made = torch.empty_like(x), kernels()
        assert made is not None
        call = _call(ctx, (mask, memory_mask), weights)
        call.x, call.memory = x.data_ptr(), None if memory is None else memory.data_ptr()
        made.stack_bytes(call, size := c_int64())
        saved = x.new_empty(size.value, dtype=torch.uint8)
        call.result, call.saved = result.data_ptr(), saved.data_ptr()
        made.train_stack(call, False)
        ctx.save_for_backward(saved, mask, memory_mask, *weights)  # masks say where what is saved lies
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_result: Tensor) -> tuple[Tensor | None, ...]:
        saved, mask, memory_mask, *weights = ctx.saved_tensors
        gradients = [None if weight is None else torch.empty_like(weight) for weight in weights]
        d_result, made = d_result.contiguous(), kernels()
        d_x = d_result.new_empty(ctx.shape)
        d_memory = None if ctx.memory_shape is None else d_result.new_empty(ctx.memory_shape)
        assert made is not None
        call = _call(ctx, (mask, memory_mask), weights, gradients)
        call.saved, call.d_result, call.d_x = saved.data_ptr(), d_result.data_ptr(), d_x.data_ptr()
        call.d_memory = None if d_memory is None else d_memory.data_ptr()
        made.train_stack(call, True)
        return None, None, None, None, d_x, d_memory, *gradients


def _call(
    ctx: Any,
    masks: Sequence[Tensor | None],
    weights: Sequence[Tensor | None],
    gradients: Sequence[Tensor | None] = (),
) -> TrainedStack:
    settings, width = ctx.settings, 2 * len(ctx.settings.parts)
    layers = (TrainedLayer * (len(weights) // width))()
    for i, (weight, gradient) in enumerate(itertools.zip_longest(weights, gradients)):
        parameter = getattr(layers[i // width], settings.parts[i % width // 2])[i % 2]
        parameter.value = None if weight is None else weight.data_ptr()
        parameter.gradient = None if gradient is None else gradient.data_ptr()
    batch, length, d_model = ctx.shape
    lengths = length, 0 if ctx.memory_shape is None else ctx.memory_shape[1]
    call = TrainedStack(len(layers), batch, *lengths, d_model)
    call.heads, call.d_ff, call.layer = settings.heads, settings.d_ff, layers
    call.mask, call.memory_mask = (
        _mask(mask, (batch, settings.heads, length, seen)) for mask, seen in zip(masks, lengths, strict=True)
    )
    if ctx.turns:
        call.cosines, call.sines, call.sines_back = (table.data_ptr() for table in ctx.turns)
    call.seed, call.epsilon, call.threads = ctx.seed, settings.epsilon, torch.get_num_threads()
    call.threshold, call.attention_threshold = settings.threshold, settings.attention_threshold
    call.activation = settings.activation
    call.pre_norm, call.bfloat16 = settings.pre_norm, ctx.dtype == torch.bfloat16
    return call


def _mask(mask: Tensor | None, shape: tuple[int, ...]) -> Mask:
    if mask is None:
        return Mask()
    seen = mask.expand(shape)
    return Mask(seen.data_ptr(), *seen.stride())
