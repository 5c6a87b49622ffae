"""Packed copies of the weights of a stack, for inference, and an encoder that computes with them."""

from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from glassformer.errors import ConfigError
from glassformer.layers.block import Block, Stack, select_tokens
from glassformer.layers.cache import StackCache
from glassformer.layers.dropout import Dropout
from glassformer.layers.embedding import OutputProjection, TokenEmbedding
from glassformer.layers.feed_forward import GatedFeedForward
from glassformer.layers.mask import Mask
from glassformer.layers.position import Rotary
from glassformer.models.bert import Pooling
from glassformer.native.abi import (
    POOLINGS,
    EncoderBatch,
    Heads,
    Layer,
    Linear,
    Norm,
    PackedStack,
    Parameter,
    RotaryTables,
)
from glassformer.native.blocks import Classes, blocks_of, heads_of, unsupported_blocks, unsupported_norm
from glassformer.native.forms import blank, shallow_copy
from glassformer.native.library import Kernels
from glassformer.native.ops import ACTIVATIONS, address, rotary_tables
from glassformer.taps import all_hooks, tracing

DROPOUTS: Classes = (Dropout, nn.Dropout, nn.Identity)
"""Classes without effect in inference."""
INITIAL_POSITIONS = 32
"""Positions allocated first; each later allocation doubles them."""


class Packed:
    """Packed copies of the weights. This object must outlive the structs that hold their addresses."""

    def __init__(self, kernels: Kernels, int8: bool, parts: bool = False):
        self.kernels = kernels
        self.int8 = int8
        self.parts = parts and kernels.multiplies_parts and not int8
        """True if weights are packed in parts: products of many rows are faster then, those of one row slower."""
        self.cache_dtype = torch.bfloat16 if int8 else torch.float32
        """Precision of keys and values. With int8 products, whose error is larger, they are rounded, since loading them
        takes longer than computing with them."""
        self._tensors: list[Tensor] = []

    def stack(self, blocks: Stack, embedding: TokenEmbedding | None = None) -> PackedStack:
        parts = blocks_of(blocks)
        attention, feed_forward = parts[0].self_attention, parts[0].feed_forward
        stack = PackedStack(
            n_layers=len(parts),
            d_model=attention.query.in_features,
            heads=Heads(*heads_of(attention)),
            pre_norm=parts[0].feed_forward_norm.pre,
            activation=ACTIVATIONS[feed_forward.activation],
            gated=isinstance(feed_forward, GatedFeedForward),
            layers=(Layer * len(parts))(*map(self.layer, parts)),
            final_norm=self.norm(blocks.final_norm),
        )
        if embedding is not None:
            stack.embedding, stack.vocab_size = self._keep(embedding.weight), len(embedding.weight)
            stack.scale, stack.embedding_norm = embedding.scale, self.norm(embedding.norm)
        return stack

    def layer(self, block: Block) -> Layer:
        own, cross, feed_forward = block.self_attention, block.cross_attention, block.feed_forward
        gate = (feed_forward.gate,) if isinstance(feed_forward, GatedFeedForward) else ()
        layer = Layer(
            self_norm=self.norm(block.self_attention_norm.norm),
            feed_forward_norm=self.norm(block.feed_forward_norm.norm),
            query=self.linear(own.query, own.key, own.value),
            output=self.linear(own.output),
            inner=self.linear(*gate, feed_forward.inner),
            outer=self.linear(feed_forward.outer),
        )
        if cross is not None and block.cross_attention_norm is not None:
            layer.cross_norm = self.norm(block.cross_attention_norm.norm)
            layer.cross_query, layer.cross_output = self.linear(cross.query), self.linear(cross.output)
            layer.cross_key = self.linear(cross.key, cross.value)
        return layer

    def norm(self, norm: nn.Module | None) -> Norm:
        if norm is None:
            return Norm()
        assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
        epsilon = torch.finfo(norm.weight.dtype).eps if norm.eps is None else norm.eps
        bias = norm.bias if isinstance(norm, nn.LayerNorm) else None
        rms = isinstance(norm, nn.RMSNorm)
        return Norm(self._parameter(norm.weight), self._parameter(bias), epsilon, rms)

    def linear(self, *parts: nn.Linear | OutputProjection) -> Linear:
        """``parts``, which have the same input, as one product."""
        weights = [part.weight.detach() for part in parts]
        weight = weights[0].contiguous() if len(parts) == 1 else torch.cat(weights)  # the vocabulary's is large
        outputs, inputs = weight.shape
        size = self.kernels.packed_bytes(outputs, inputs, self.int8, self.parts)
        packed = weight.new_empty(size, dtype=torch.uint8)
        panel = self.kernels.panel_size
        scales = weight.new_empty(-(-outputs // panel) * panel) if self.int8 else None
        self.kernels.pack_weights(weight.data_ptr(), outputs, inputs, packed.data_ptr(), address(scales), self.parts)
        bias = None
        if any(part.bias is not None for part in parts):
            zeros = [part.weight.new_zeros(len(part.weight)) if part.bias is None else part.bias for part in parts]
            bias = torch.cat([one.detach() for one in zeros])
        return Linear(self._parameter(packed), self._parameter(bias), self._keep(scales), outputs, inputs, self.parts)

    def apply(self, linear: Linear, x: Float[Tensor, "rows inputs"]) -> Float[Tensor, "rows outputs"]:
        y = x.new_empty(len(x), linear.outputs)
        self.kernels.apply_linear(linear, x.data_ptr(), len(x), y.data_ptr(), torch.get_num_threads())
        return y

    def _parameter(self, tensor: Tensor | None) -> Parameter:
        return Parameter(self._keep(tensor))

    def _keep(self, tensor: Tensor | None) -> int | None:
        """Keep ``tensor`` alive and return its address."""
        if tensor is None:
            return None
        self._tensors.append(tensor := tensor.detach().contiguous())
        return tensor.data_ptr()


class RotaryCache:
    """Growing tables of cosines and sines of rotary positions; empty if ``rotary`` is None."""

    def __init__(self, rotary: Rotary | None):
        self._rotary = rotary
        self._prepared = 0, RotaryTables()

    def of(self, length: int) -> RotaryTables:
        """Tables of at least ``length`` positions; replaced, never changed in place, since searches run in parallel."""
        prepared, tables = self._prepared
        if self._rotary is None or length <= prepared:
            return tables
        length = max(INITIAL_POSITIONS, 2 * length)
        tensors = rotary_tables(self._rotary.angles(length, torch.device("cpu")))
        tables = RotaryTables(*(tensor.data_ptr() for tensor in tensors))
        tables.tensors = tensors  # a call may outlive their place in the cache
        self._prepared = length, tables
        return tables


class PackedEncoder(Stack):
    """A stack without a causal mask, computed without padding from packed weights.

    The blocks themselves compute gradients, dropout, other masks and other types, and every pass with a trace or hooks.
    The output at padding is 0.
    """

    packed: Packed
    structure: PackedStack
    rotary: RotaryCache
    hooks: list[Any]

    def forward(
        self,
        x: Float[Tensor, "batch length d_model"],
        mask: Mask | None = None,
        memory: Float[Tensor, "sentences source d_model"] | None = None,
        memory_mask: Mask | None = None,
        cache: StackCache | None = None,
        selected: Int[Tensor, " selected"] | None = None,
    ) -> Float[Tensor, "*tokens d_model"]:
        if self.packed.int8 and torch.is_grad_enabled():
            raise ConfigError("precision=int8 has no gradients; compute under torch.inference_mode()")
        tokens = self._tokens(x, mask) if memory is None and cache is None else None
        if tokens is None:
            return super().forward(x, mask, memory, memory_mask, cache, selected)
        x = x.contiguous()
        result = torch.empty_like(x)
        self._run(EncoderBatch(x=x.data_ptr()), tokens, result)
        return select_tokens(result, selected)

    def encode_texts(
        self,
        ids: Int[Tensor, "batch length"],
        tokens: Bool[Tensor, "batch length"],
        segments: Int[Tensor, "batch length"] | None,
        tables: tuple[Tensor, Tensor],
        pooling: Pooling | None,
    ) -> Float[Tensor, "batch *length d_model"]:
        """The output for the embeddings of ``ids``: vectors of all tokens, or with ``pooling`` one a text.

        ``tables``: encodings of positions and segments. The stack was packed with the embedding of ``ids``.
        """
        positions, segment_table = (table.contiguous() for table in tables)
        ids, segments = ids.long().contiguous(), None if segments is None else segments.long().contiguous()
        batch = EncoderBatch(
            ids=ids.data_ptr(),
            segments=address(segments),
            positions=positions.data_ptr(),
            segment_table=segment_table.data_ptr(),
            n_segments=len(segment_table),
            pooling=0 if pooling is None else POOLINGS[pooling],
        )
        shape = ids.shape if pooling is None else ids.shape[:1]
        result = positions.new_empty(*shape, self.structure.d_model)
        self._run(batch, tokens, result)
        return result

    def _run(self, batch: EncoderBatch, tokens: Bool[Tensor, "batch length"], result: Tensor) -> None:
        first = cu_seqlens_of(tokens.sum(1))
        batch.sequences, batch.length = tokens.shape
        batch.cu_seqlens, batch.result = first.data_ptr(), result.data_ptr()
        rotary, threads = self.rotary.of(tokens.size(1)), torch.get_num_threads()
        self.packed.kernels.encode_batch(self.structure, rotary, batch, threads)

    def computes(self, tokens: Tensor) -> bool:
        """True if the kernels compute a pass over ``tokens``: a boolean mask with all padding at the end."""
        if torch.is_grad_enabled() or self.training or tracing() or any(self.hooks):
            return False
        return tokens.is_cpu and tokens.dtype == torch.bool and pads_behind(tokens)

    def _tokens(
        self, x: Float[Tensor, "batch length d_model"], mask: Mask | None
    ) -> Bool[Tensor, "batch length"] | None:
        """True for tokens; None if the kernels do not compute this pass."""
        if x.dtype != torch.float32 or not x.is_cpu or x.size(2) != self.structure.d_model:
            return None
        if mask is not None and (mask.causal or mask.pattern is not None or mask.allowed is not None):
            return None
        tokens = torch.ones(x.shape[:2], dtype=torch.bool) if mask is None or mask.keys is None else mask.keys
        return tokens if tokens.shape == x.shape[:2] and self.computes(tokens) else None

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A copy is a plain stack: the packed weights belong to this one."""
        own = ("packed", "structure", "rotary", "hooks")
        return blank, (Stack,), {name: value for name, value in self.__dict__.items() if name not in own}


def cu_seqlens_of(lengths: Int[Tensor, " sequences"]) -> Int[Tensor, " ends"]:
    """Index of the first token of each sequence in a concatenation, and the end of the last one."""
    return F.pad(lengths.cumsum(0), (1, 0))


def pads_behind(mask: Bool[Tensor, "batch length"]) -> bool:
    """True if all padding follows the tokens."""
    return bool((mask[:, 1:] <= mask[:, :-1]).all())


def pack_encoder(stack: Stack, kernels: Kernels, int8: bool, embedding: TokenEmbedding | None = None) -> PackedEncoder:
    """A stack of the same parameters and hooks that computes with packed copies of the weights.

    ``PackedEncoder.encode_texts`` requires ``embedding``.
    """
    form: Any = shallow_copy(stack)
    form.__class__ = PackedEncoder
    form.packed = Packed(kernels, int8, parts=True)
    form.structure = form.packed.stack(stack, embedding)
    form.rotary = RotaryCache(blocks_of(stack)[0].self_attention.rotary)
    form.hooks = all_hooks(*stack.children())
    return cast(PackedEncoder, form)


def unsupported_stack(stack: Stack, cross_attention: bool) -> str | None:
    """Reason why ``stack`` cannot be packed, or None. ``cross_attention``: True if its blocks must have one."""
    if reason := unsupported_blocks(stack, DROPOUTS):
        return reason
    blocks = blocks_of(stack)
    if any((block.cross_attention is not None) != cross_attention for block in blocks):
        return "blocks with and without cross-attention"
    if stack.final_norm is not None and (reason := unsupported_norm(stack.final_norm)):
        return reason
    return None if len({_settings(block) for block in blocks}) == 1 else "layers that differ"


def _settings(block: Block) -> tuple[object, ...]:
    """Settings that one struct has for all layers."""
    rotary, feed_forward = block.self_attention.rotary, block.feed_forward
    return (
        heads_of(block.self_attention),
        None if rotary is None else (rotary.d_head, rotary.theta),
        (type(feed_forward), feed_forward.activation),
        block.feed_forward_norm.pre,
    )
