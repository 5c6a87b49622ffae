"""A stack of layers in training, as one kernel."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from ctypes import c_int64, c_void_p, sizeof
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from glassformer.layers.block import AddNorm, Block, Stack
from glassformer.layers.cache import StackCache
from glassformer.layers.dropout import Dropout
from glassformer.layers.mask import Mask
from glassformer.layers.position import Rotary
from glassformer.native import abi
from glassformer.native.blocks import norm_settings
from glassformer.native.library import loaded
from glassformer.native.ops import (
    PANEL_WIDTH,
    address,
    check_boolean,
    computable,
    computes_gradient,
    in_rows,
    random_seed,
    rotary_tables,
)
from glassformer.taps import InputRecorder

NO_LAYER = -1
NORMS = "self_attention_norm", "cross_attention_norm", "feed_forward_norm"
ATTENTIONS = "self_attention", "cross_attention"


class NativeStack(Stack):
    """A stack in one kernel, forward and backward.

    With a hook on one of its modules, a trace, a cache or no gradient, it runs block by block; but ``InputRecorder``s
    of the cross-attention of one layer are called with what the kernel returns for them.
    Positions after the last one visible to any query are padding: they are not computed. Their output is 0, and so is
    what is recorded, before the norm of a sub-layer. After the attention of its last layer, the kernel computes
    selected tokens only, except with a memory.
    """

    settings: "StackSettings"
    hooks: list[Mapping[int, Any]]
    """Registries of the hooks of all modules in the stack."""

    def forward(
        self,
        x: Float[Tensor, "batch length d_model"],
        mask: Mask | None = None,
        memory: Float[Tensor, "sentences source d_model"] | None = None,
        memory_mask: Mask | None = None,
        cache: StackCache | None = None,
        selected: Int[Tensor, " selected"] | None = None,
    ) -> Float[Tensor, "*tokens d_model"]:
        x = x if x.dtype == torch.float32 else x.to(self.dtype)  # the kernel rounds; its gradient is float32 too
        thresholds, recorded = self._dropout_thresholds(), self._recorded_layer()
        fits = cache is None and self._fits(x, memory) and computes_gradient(x) and self._selects(selected)
        if not fits or thresholds is None or recorded is None:
            return super().forward(x, mask, memory, memory_mask, cache, selected)
        rotary = cast(Block, self.layers[0]).self_attention.rotary
        tables = (
            () if rotary is None else _rotary_tables(cast(Any, type(rotary)), rotary.d_head, rotary.theta, x.size(1))
        )
        dense = dense_mask(mask, x, x)
        memory_dense = None if memory is None else dense_mask(memory_mask, x, memory)
        modules = [part for block in self.layers for _, part in parts_of(block)]
        modules += [] if self.final_norm is None else [self.final_norm]
        weights = [weight for part in modules for weight in _weights_of(part)]
        if not self._reads(weights, x.size(-1)):
            return super().forward(x, mask, memory, memory_mask, cache, selected)
        state = CallState(thresholds, recorded)
        result: Any = _Stack.apply(self.settings, state, (dense, memory_dense), tables, selected, x, memory, *weights)
        if recorded != NO_LAYER:
            result, cross_input = result
            _call_recorders(cast(Block, self.layers[recorded]), cross_input, memory, memory_mask)
        return cast(Tensor, result)

    def _recorded_layer(self) -> int | None:
        """Index of the layer whose cross-attention inputs are recorded.

        ``NO_LAYER`` if no module has hooks; None if there are other hooks, or inputs of several layers are recorded.
        """
        if not any(self.hooks):
            return NO_LAYER
        first, *more = [hooks for hooks in self.hooks if hooks]
        layers = [
            index
            for index, block in enumerate(self.layers)
            if (cross := block._modules.get("cross_attention")) is not None and cross._forward_pre_hooks is first
        ]
        known = len(layers) == 1 and not more and all(type(hook) is InputRecorder for hook in first.values())
        return layers[0] if known else None

    def _fits(self, x: Tensor, memory: Tensor | None) -> bool:
        """True if ``memory`` has the rows of ``x`` and the type of the weights, or is missing where none is read.

        The processor must also compute in this type, and ``x`` have the width of the stack, which fills full panels.
        """
        weight = cast(Block, self.layers[0]).feed_forward.inner.weight
        width = weight.size(1)
        if x.size(-1) != width or width % PANEL_WIDTH or not computable(weight.dtype) or not self._ends_as_set():
            return False
        if memory is None:
            return x.numel() > 0 and "cross_query" not in self.settings.parts
        alike = memory.dtype == weight.dtype and len(memory) == len(x) and memory.size(-1) == x.size(-1)
        return alike and memory.is_cpu and x.numel() > 0 < memory.numel() and "cross_query" in self.settings.parts

    def _reads(self, weights: Sequence[Tensor | None], d_model: int) -> bool:
        """True if the kernel can read these weights: they may be other ones than when the stack was made."""
        shapes = _shapes(self.settings, d_model, len(self.layers))
        alike = len(weights) == len(shapes) and in_rows(weights, cast(Tensor, weights[0]).dtype)
        return alike and all(w is None or w.shape == shape for w, shape in zip(weights, shapes, strict=True))

    def _ends_as_set(self) -> bool:
        """True if the final norm is still like that of the settings."""
        norm = self.final_norm
        if norm is None:
            return self.settings.final_norm is None
        return norm_settings(norm) == self.settings.final_norm is not None

    def _selects(self, tokens: Tensor | None) -> bool:
        """True if the kernel computes this selection. PyTorch selects otherwise, and refuses what is not an index."""
        if tokens is None:
            return True
        return tokens.is_cpu and tokens.dim() == 1 and len(tokens) > 0 and tokens.dtype in (torch.int32, torch.int64)

    def _dropout_thresholds(self) -> tuple[int, int] | None:
        """Thresholds of residual and attention dropout; None if modules differ, as after freezing some of them."""
        blocks = [block._modules for block in self.layers]
        residual, attention = (
            {
                cast(Dropout, part._modules["dropout"]).active_threshold
                for block in blocks
                for name in names
                if (part := block.get(name)) is not None
            }
            for names in (NORMS, ATTENTIONS)
        )
        if len(residual) > 1 or len(attention) > 1:
            return None
        return residual.pop(), attention.pop()


def _call_recorders(block: Block, x: Tensor, memory: Tensor | None, memory_mask: Mask | None) -> None:
    """Call the recorders of the cross-attention of ``block``; ``x`` is the input of its sub-layer."""
    wrap, attention = cast(AddNorm, block.cross_attention_norm), cast(nn.Module, block.cross_attention)
    arguments = (wrap.norm(x) if wrap.pre else x, memory, memory_mask, None)
    for recorder in attention._forward_pre_hooks.values():
        recorder(attention, arguments)


@dataclass(frozen=True)
class StackSettings:
    """Properties that all layers of a stack share, and the order of their weights."""

    heads: tuple[int, int]
    """Heads, and heads of keys and values."""
    widths: tuple[int, int]
    """d_k and d_v."""
    d_ff: int
    norm: tuple[float, bool]
    """Epsilon of the normalizations, and whether they are RMSNorm instead of LayerNorm."""
    pre_norm: bool
    activation: int
    """Index of the activation in ``abi.ACTIVATIONS``."""
    parts: tuple[str, ...]
    """Modules of a layer that have weights, in the order in which the weights are passed."""
    rotary: tuple[int, float] | None
    """Head width and θ of rotary positions."""
    final_norm: tuple[float, bool] | None = None
    """Settings of the norm after the last layer, or None. Its weights follow those of the layers."""


def parts_of(block: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules of ``block`` that have weights, under the names that ``abi.Layer`` gives them.

    It reads the dictionaries of the modules: each attribute of a module would cost 1 µs, a hundred times a step.
    """
    children = block._modules
    for name, wrap in zip(abi.Layer.NORMS, NORMS, strict=True):
        if (module := children.get(wrap)) is not None:
            yield name, cast(nn.Module, module._modules["norm"])
    for names, attention in zip((abi.Layer.SELF, abi.Layer.CROSS), ATTENTIONS, strict=True):
        if (module := children.get(attention)) is not None:
            for name, projection in zip(names, abi.Layer.SELF, strict=True):
                yield name, cast(nn.Module, module._modules[projection])
    products = cast(nn.Module, children["feed_forward"])._modules
    for name in abi.Layer.FEED_FORWARD:
        if (product := products.get(name)) is not None:
            yield name, product


def _weights_of(part: nn.Module) -> tuple[Tensor | None, Tensor | None]:
    """Weight and bias. RMSNorm has none; parametrized ones are no parameters."""
    own = part._parameters
    weight = own["weight"] if "weight" in own else cast(Tensor, part.weight)
    return weight, own["bias"] if "bias" in own else getattr(part, "bias", None)


class CallState(NamedTuple):
    """Settings of one call of a stack."""

    thresholds: tuple[int, int]
    """Thresholds of residual and attention dropout."""
    recorded: int
    """Index of the layer whose cross-attention inputs are recorded, or ``NO_LAYER``."""


class _Stack(torch.autograd.Function):
    """``weights``: weight and bias of each part, layer by layer; None for a missing bias."""

    @staticmethod
    def forward(
        ctx: Any,
        settings: StackSettings,
        state: CallState,
        masks: tuple[Tensor | None, Tensor | None],
        tables: tuple[Tensor, ...],
        selected: Tensor | None,
        x: Tensor,
        memory: Tensor | None,
        *weights: Tensor | None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        x, memory = x.contiguous(), None if memory is None else memory.contiguous()
        ctx.settings, ctx.state, ctx.tables = settings, state, tables
        ctx.shape, ctx.memory_shape = x.shape, None if memory is None else memory.shape
        ctx.dtypes = x.dtype, cast(Tensor, weights[0]).dtype
        ctx.seed = random_seed() if any(state.thresholds) else 0
        selected = None if selected is None else selected.long().contiguous()
        result = x.new_empty(x.shape if selected is None else (len(selected), x.size(2)), dtype=ctx.dtypes[1])
        call, kernels = _stack_call(ctx, masks, selected, weights), loaded()
        call.x, call.memory = x.data_ptr(), address(memory)
        kernels.stack_bytes(call, size := c_int64())
        saved = x.new_empty(size.value, dtype=torch.uint8)
        call.result, call.saved = result.data_ptr(), saved.data_ptr()
        cross_input = None if state.recorded == NO_LAYER else x.new_empty(x.shape, dtype=ctx.dtypes[1])
        call.cross_input = address(cross_input)
        kernels.train_stack(call, False)
        ctx.save_for_backward(saved, selected, *masks, *weights)  # the masks determine the layout of ``saved``
        return result if cross_input is None else (result, cross_input)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_result: Tensor, d_cross_input: Tensor | None = None) -> tuple[Tensor | None, ...]:
        saved, selected, mask, memory_mask, *weights = ctx.saved_tensors
        gradients = [None if weight is None else torch.empty_like(weight) for weight in weights]
        d_result = d_result.contiguous()
        d_x = d_result.new_empty(ctx.shape, dtype=ctx.dtypes[0])
        d_memory = None if ctx.memory_shape is None else d_result.new_empty(ctx.memory_shape)
        call = _stack_call(ctx, (mask, memory_mask), selected, weights, gradients)
        call.saved, call.d_result, call.d_x = saved.data_ptr(), d_result.data_ptr(), d_x.data_ptr()
        call.d_memory = address(d_memory)
        d_cross_input = None if d_cross_input is None else d_cross_input.contiguous()
        call.d_cross_input = address(d_cross_input)
        loaded().train_stack(call, True)
        return None, None, None, None, None, d_x, d_memory, *gradients


def _stack_call(
    ctx: Any,
    masks: Sequence[Tensor | None],
    selected: Tensor | None,
    weights: Sequence[Tensor | None],
    gradients: Sequence[Tensor | None] = (),
) -> abi.TrainingStack:
    settings = ctx.settings
    count = 2 * len(settings.parts)  # weights of a layer; those of the final norm are behind the last one
    layers = _layers(settings, ctx.shape[2], len(weights) // count)
    addresses = (c_void_p * (sizeof(layers) // sizeof(c_void_p))).from_buffer(layers)  # names cost 1 µs each
    indices = _address_indices(settings.parts, len(layers))
    for i, weight in zip(indices, weights[: len(indices)], strict=True):
        addresses[i] = address(weight)
    for i, gradient in zip(indices, gradients):
        addresses[i + 1] = address(gradient)
    batch, length, d_model = ctx.shape
    lengths = length, 0 if ctx.memory_shape is None else ctx.memory_shape[1]
    call = abi.TrainingStack(len(layers), batch, *lengths, d_model)
    call.heads = abi.Heads(*settings.heads, *settings.widths)
    call.d_ff, call.layers = settings.d_ff, layers
    call.mask, call.memory_mask = (
        _mask(mask, (batch, settings.heads[0], length, keys)) for mask, keys in zip(masks, lengths, strict=True)
    )
    if ctx.tables:
        cosines, sines, call.inverse_sines = (table.data_ptr() for table in ctx.tables)
        call.rotary = abi.RotaryTables(cosines, sines)
    call.seed, call.threads = ctx.seed, torch.get_num_threads()
    call.threshold, call.attention_threshold = ctx.state.thresholds
    call.pre_norm, call.activation = settings.pre_norm, settings.activation
    call.float_x, call.bfloat16 = ctx.dtypes[0] == torch.float32, ctx.dtypes[1] == torch.bfloat16
    call.selected, call.selected_count = address(selected), 0 if selected is None else len(selected)
    call.cross_layer = ctx.state.recorded
    if settings.final_norm is not None:
        norm = call.final_norm
        norm.epsilon, norm.rms = settings.final_norm
        norm.weight.value, norm.bias.value = map(address, weights[-2:])
        if gradients:
            norm.weight.gradient, norm.bias.gradient = map(address, gradients[-2:])
    return call


@functools.lru_cache(maxsize=32)
def _rotary_tables(kind: type[Rotary], d_head: int, theta: float, length: int) -> tuple[Tensor, ...]:
    """Cosines and sines of rotary positions, and sines of the rotation back, for the backward pass."""
    cosines, sines = rotary_tables(kind(d_head, theta).angles(length, torch.device("cpu")))
    return cosines, sines, -sines


def _layers(settings: StackSettings, d_model: int, count: int) -> Any:
    """An array of layers with the settings of their norms and the sizes of their weights."""
    return (abi.Layer * count).from_buffer_copy(_empty_layer(settings, d_model) * count)


@functools.cache
def _empty_layer(settings: StackSettings, d_model: int) -> bytes:
    layer = abi.Layer()
    for norm in (getattr(layer, name) for name in abi.Layer.NORMS):
        norm.epsilon, norm.rms = settings.norm
    shapes = _shapes(settings, d_model, 1)
    for name, shape in zip(settings.parts, shapes[: 2 * len(settings.parts) : 2], strict=True):
        if name not in abi.Layer.NORMS:
            linear = getattr(layer, name)
            linear.outputs, linear.inputs = shape
    return bytes(layer)


@functools.cache
def _address_indices(parts: tuple[str, ...], n_layers: int) -> tuple[int, ...]:
    """Indices of weight and bias of each part in an array of layers seen as addresses; those of gradients follow."""
    kinds, layer = {name: kind for name, kind, *_ in abi.Layer._fields_}, sizeof(abi.Layer)
    offsets = [
        getattr(abi.Layer, part).offset + getattr(kinds[part], name).offset
        for part in parts
        for name in ("weight", "bias")
    ]
    return tuple((i * layer + offset) // sizeof(c_void_p) for i in range(n_layers) for offset in offsets)


@functools.cache
def _shapes(settings: StackSettings, d_model: int, n_layers: int) -> tuple[tuple[int, ...], ...]:
    """Shapes of weight and bias of each part, in the order in which they are passed."""
    (heads, kv_heads), (d_k, d_v) = settings.heads, settings.widths
    widths = dict(zip(abi.Layer.SELF, (heads * d_k, kv_heads * d_k, kv_heads * d_v, d_model), strict=True))
    widths |= dict(zip(abi.Layer.CROSS, widths.values(), strict=True))
    widths |= dict(zip(abi.Layer.FEED_FORWARD, (settings.d_ff, settings.d_ff, d_model), strict=True))
    inputs = dict.fromkeys((abi.Layer.SELF[-1], abi.Layer.CROSS[-1]), heads * d_v)
    inputs[abi.Layer.FEED_FORWARD[-1]] = settings.d_ff
    norm = ((d_model,), (d_model,))
    layer = [
        shape
        for part in settings.parts
        for shape in (norm if part in abi.Layer.NORMS else ((widths[part], inputs.get(part, d_model)), (widths[part],)))
    ]
    return (*layer * n_layers, *(() if settings.final_norm is None else norm))


def dense_mask(mask: Mask | None, queries: Tensor, keys: Tensor) -> Tensor | None:
    """``mask`` as a tensor for these queries and keys.

    If sentences are numbered, and nothing else hides keys, it also hides padding at the end of a row of keys.
    """
    shape = queries.size(0), queries.size(1), keys.size(1)
    if mask is None or not mask.only_sentences:
        return None if mask is None else mask.dense(*shape[1:], queries.device)
    numbers = cast(Tensor, mask.queries), cast(Tensor, mask.keys)
    if any(n.shape != (shape[0], length) or not n.is_cpu for n, length in zip(numbers, shape[1:], strict=True)):
        return mask.dense(*shape[1:], queries.device)
    query_sentences, key_sentences = (n.long().contiguous() for n in numbers)
    dense = queries.new_empty(shape, dtype=torch.bool)
    addresses = query_sentences.data_ptr(), key_sentences.data_ptr(), dense.data_ptr()
    loaded().fill_mask(abi.SentenceMask(*shape, *addresses, mask.causal, torch.get_num_threads()))
    return dense[:, None]


def _mask(mask: Tensor | None, shape: tuple[int, ...]) -> abi.DenseMask:
    if mask is None:
        return abi.DenseMask()
    check_boolean(mask)
    mask = mask.expand(shape)
    return abi.DenseMask(mask.data_ptr(), *mask.stride())
