"""Decoding in the kernels: an encoder–decoder with packed copies of its weights."""

import ctypes
from dataclasses import dataclass, field
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from glassformer.layers.block import Block
from glassformer.layers.block import Stack as Blocks
from glassformer.layers.embedding import OutputProjection, TokenEmbedding
from glassformer.layers.rotary import Rotary
from glassformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from glassformer.native.abi import Extension, KeyValueCache, Layer, Linear, Norm, RotaryTables, Stack
from glassformer.native.library import Kernels
from glassformer.native.ops import ACTIVATIONS, rotary_tables

ROOM = 32
"""Positions allocated at first; then twice as many each time."""
MAX_SOURCE_TOKENS = 1024
"""Maximum source tokens of a batch; larger batches are 1 to 4 % faster, and memory grows in proportion."""
TOKENS_AT_ONCE = 256
"""Source tokens encoded together; their activations fit the L2 cache."""


class NativeDecoder:
    """``begin`` and ``step`` of ``model`` in the kernels, with packed copies of its weights.

    Matrix products are float32, or with ``int8`` eight-bit: weights with a scale for each output, activations quantized
    row by row. The decoder then keeps keys and values in bfloat16, since loading them takes longer than computing with
    them. The logits of a row are the same to the bit whatever rows are computed with it.
    """

    def __init__(self, model: EncoderDecoder, kernels: Kernels, int8: bool = False):
        self.model = model
        self.kernels = kernels
        self.execution = Execution(
            SearchKernels(kernels), in_threads=True, max_source_tokens=MAX_SOURCE_TOKENS, copies_weights=True
        )
        self.packed = Packed(kernels, int8)
        self.cache_dtype = torch.bfloat16 if int8 else torch.float32
        self.encoder = self.packed.stack(model.config, model.encoder, model.source_embedding)
        self.decoder = self.packed.stack(model.config, model.decoder, model.target_embedding)
        self.output = self.packed.linear(model.output_projection)
        self.rotary = cast(Block, model.encoder.layers[0]).self_attention.rotary
        self._tables = _RotaryCache(0, (), RotaryTables())

    def __call__(self, source: Tensor, target: Tensor, source_mask: Tensor) -> Tensor:
        return self.model(source, target, source_mask)

    def begin(
        self,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        use_cache: bool = True,
    ) -> Any:
        """Encode the source once. Without a cache, return the state of ``model`` itself."""
        if not use_cache:
            return self.model.begin(source, source_mask, use_cache)
        lengths = source_mask.sum(1)
        ids, memory = source[source_mask].long(), self._positions(source_mask)
        first = F.pad(lengths.cumsum(0), (1, 0))
        tables = self._rotary_cache(source.size(1))
        projections = [self.decoder.layer[index].memory for index in range(self.decoder.layers)]
        seen = [memory.new_empty(len(ids), one.outputs, dtype=self.cache_dtype) for one in projections]
        for start, stop in _groups(first.tolist()):
            tokens, begins = slice(first[start], first[stop]), first[start : stop + 1] - first[start]
            some, x = ids[tokens], memory[tokens]
            where = some.data_ptr(), x.data_ptr(), begins.data_ptr()
            self.kernels.encode(self.encoder, tables.structure, *where, stop - start, torch.get_num_threads())
            for one, kept in zip(projections, seen, strict=True):
                kept[tokens] = self._apply(one, x)
        beam_index = source.new_zeros(len(source), ROOM, dtype=torch.int32)
        return NativeState(seen, first[:-1], lengths, beam_index)

    def step(self, tokens: Int[Tensor, "rows new"], state: Any) -> Float[Tensor, "rows vocab"]:
        """Logits after ``tokens``, valid until the next step."""
        if not isinstance(state, NativeState):
            return self.model.step(tokens, state)
        rows, new = tokens.shape
        position = self.model.target_embedding.position
        if state.logits is None or state.logits.size(0) < rows:
            state.logits = state.memory[0].new_empty(rows, self.output.outputs, dtype=torch.float32)
        ids = tokens.t().long().contiguous()
        for first in range(ids.data_ptr(), ids.data_ptr() + ids.nbytes, ids.nbytes // new):
            place = None if position is None else position(len(state.keys_values), 1)
            self.kernels.decode(
                self.decoder,
                self._rotary_cache(len(state.keys_values) + 1).structure,
                self.output,
                first,
                None if place is None else place.data_ptr(),
                rows,
                state.append(self.decoder.layers, rows),
                state.logits.data_ptr(),
                torch.get_num_threads(),
            )
        return state.logits[:rows]

    def _positions(self, source_mask: Bool[Tensor, "batch source"]) -> Float[Tensor, "tokens d_model"]:
        """Positional encoding of each source token."""
        position = self.model.source_embedding.position
        if position is None:
            return self.model.source_embedding.weight.new_zeros(int(source_mask.sum()), self.encoder.d_model)
        return position(0, source_mask.size(1))[source_mask.nonzero()[:, 1]]

    def _rotary_cache(self, length: int) -> "_RotaryCache":
        """Tables of at least ``length`` positions; replaced, never changed in place, since searches run in parallel."""
        if self.rotary is not None and length > self._tables.length:
            self._tables = _RotaryCache.of(self.rotary, max(ROOM, 2 * length))
        return self._tables

    def _apply(self, linear: Linear, x: Float[Tensor, "rows inputs"]) -> Float[Tensor, "rows outputs"]:
        y = x.new_empty(len(x), linear.outputs)
        self.kernels.linear(linear, x.data_ptr(), len(x), y.data_ptr(), torch.get_num_threads())
        return y


@dataclass
class NativeState:
    """State of a search. No key or value is copied: ``beam_index`` holds the row that wrote each position.

    Keys and values are bfloat16 where products are int8, whose error is larger.
    """

    memory: list[Tensor]
    """Keys and values of all source tokens in each layer, ``[tokens, heads · (d_k + d_v)]``."""
    first: Int[Tensor, " sentences"]
    length: Int[Tensor, " sentences"]
    """Index in the memory of each sentence's first token, and its number of tokens."""
    beam_index: Int[Tensor, "rows room"]
    logits: Tensor | None = None
    """Buffer that every step overwrites."""
    keys_values: list[Tensor] = field(default_factory=list)
    """Keys and values of each position, ``[layers, rows of that step, heads · (d_k + d_v)]``."""

    def __post_init__(self) -> None:
        self._memory = (ctypes.c_void_p * len(self.memory))(*(one.data_ptr() for one in self.memory))
        self._keys_values, self._rows = (ctypes.c_void_p * ROOM)(), (ctypes.c_int64 * ROOM)()

    def select(self, rows: Tensor) -> None:
        """Keep these hypotheses, in this order."""
        self.beam_index = self.beam_index[rows]

    def select_sentences(self, sentences: Tensor) -> None:
        """Keep the memory of these sentences, in this order."""
        self.first, self.length = self.first[sentences], self.length[sentences]

    def append(self, layers: int, rows: int) -> KeyValueCache:
        """Allocate one more position for ``rows`` hypotheses, and describe the cache to the kernels."""
        if rows and any(not len(one) or rows % len(one) for one in (self.first, self.beam_index)):
            raise ValueError(
                f"{rows} tokens for {len(self.beam_index)} hypotheses of {len(self.first)} sentences; "
                "select as many hypotheses of each"
            )
        position = len(self.keys_values)
        if position == len(self._keys_values):
            room = 2 * position
            self.beam_index = F.pad(self.beam_index, (0, room - position))
            self._keys_values = (ctypes.c_void_p * room)(*self._keys_values)
            self._rows = (ctypes.c_int64 * room)(*self._rows)
        if rows != self.beam_index.size(0):  # hypotheses of a sentence that had one before
            self.beam_index = self.beam_index.repeat_interleave(rows // max(1, self.beam_index.size(0)), 0)
        self.keys_values.append(newest := self.memory[0].new_empty(layers, rows, self.memory[0].size(1)))
        self._keys_values[position], self._rows[position] = newest.data_ptr(), rows
        return KeyValueCache(
            position + 1,
            self._keys_values,
            self._rows,
            self.beam_index.data_ptr(),
            self.beam_index.size(1),
            self._memory,
            self.first.data_ptr(),
            self.length.data_ptr(),
            rows // max(1, self.first.size(0)),
            self.memory[0].dtype == torch.bfloat16,
        )


@dataclass(frozen=True)
class _RotaryCache:
    """Cosines and sines of rotary positions, and their addresses."""

    length: int
    tables: tuple[Tensor, ...]
    structure: RotaryTables

    @classmethod
    def of(cls, rotary: Rotary, length: int) -> "_RotaryCache":
        tables = rotary_tables(rotary.angles(length, torch.device("cpu")))
        return cls(length, tables, RotaryTables(*(table.data_ptr() for table in tables)))


class Packed:
    """Packed copies of the weights. This object must outlive the structs that hold their addresses."""

    def __init__(self, kernels: Kernels, int8: bool):
        self.kernels = kernels
        self.int8 = int8
        self._tensors: list[Tensor] = []

    def stack(self, config: EncoderDecoderConfig, blocks: Blocks, embedding: TokenEmbedding) -> Stack:
        parts = [cast(Block, block) for block in blocks.layers]
        last = Norm() if blocks.final_norm is None else self.norm(blocks.final_norm)
        return Stack(
            len(parts),
            config.d_model,
            config.n_heads,
            *config.head_sizes,
            blocks.final_norm is not None,
            ACTIVATIONS[parts[0].feed_forward.activation],
            (Layer * len(parts))(*map(self.layer, parts)),
            last,
            self._keep(embedding.weight),
            len(embedding.weight),
        )

    def layer(self, block: Block) -> Layer:
        own, cross = block.self_attention, block.cross_attention
        layer = Layer(
            self_norm=self.norm(block.self_attention_norm.norm),
            feed_forward_norm=self.norm(block.feed_forward_norm.norm),
            self_qkv=self.linear(own.query, own.key, own.value),
            self_output=self.linear(own.output),
            inner=self.linear(block.feed_forward.inner),
            outer=self.linear(block.feed_forward.outer),
        )
        if cross is not None and block.cross_attention_norm is not None:
            layer.cross_norm = self.norm(block.cross_attention_norm.norm)
            layer.query, layer.cross_output = self.linear(cross.query), self.linear(cross.output)
            layer.memory = self.linear(cross.key, cross.value)
        return layer

    def norm(self, norm: nn.Module) -> Norm:
        assert isinstance(norm, nn.LayerNorm)
        return Norm(self._keep(norm.weight), self._keep(norm.bias), norm.eps)

    def linear(self, *parts: nn.Linear | OutputProjection) -> Linear:
        """``parts``, which have the same input, as one product."""
        weights = [part.weight.detach() for part in parts]
        weight = weights[0].contiguous() if len(parts) == 1 else torch.cat(weights)  # the vocabulary's is large
        outputs, inputs = weight.shape
        across, down = -(-outputs // self.kernels.panel) * self.kernels.panel, -(-inputs // 4) * 4
        scales = weight.new_empty(across) if self.int8 else None
        size, dtype = (across * down, torch.uint8) if self.int8 else (across * inputs, weight.dtype)
        packed = weight.new_empty(size, dtype=dtype)
        where = None if scales is None else scales.data_ptr()
        self.kernels.pack(weight.data_ptr(), outputs, inputs, packed.data_ptr(), where)
        biases = [part.bias.detach() for part in parts if part.bias is not None]
        bias = torch.cat(biases) if biases else None
        return Linear(outputs, inputs, self._keep(packed), self._keep(scales), self._keep(bias))

    def _keep(self, tensor: Tensor | None) -> int | None:
        """Keep ``tensor`` alive and return its address."""
        if tensor is None:
            return None
        self._tensors.append(tensor := tensor.detach().contiguous())
        return tensor.data_ptr()


class SearchKernels:
    """Steps of a search over float32 logits on a CPU."""

    def __init__(self, kernels: Kernels):
        self._kernels = kernels

    def log_sum(self, logits: Float[Tensor, "rows vocab"]) -> Float[Tensor, " rows"]:
        """log Σ e^logit of each row."""
        logits = logits.contiguous()
        sums = logits.new_empty(logits.size(0))
        self._kernels.log_sums(logits.data_ptr(), *logits.shape, sums.data_ptr())
        return sums

    def best(
        self, logits: Float[Tensor, "rows vocab"], k: int
    ) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
        """The ``k`` greatest logits of each row, best first, and their indices."""
        logits = logits.contiguous()
        values = logits.new_empty(logits.size(0), min(k, logits.size(1)))
        ids = torch.empty_like(values, dtype=torch.long)
        self._kernels.best_of(logits.data_ptr(), *logits.shape, values.size(1), values.data_ptr(), ids.data_ptr())
        return values, ids

    def extend(
        self,
        logits: Float[Tensor, "rows vocab"],
        normalizers: Float[Tensor, " rows"],
        totals: Float[Tensor, "sentences live"],
        end: int,
        beam_size: int,
    ) -> tuple[tuple[Tensor, ...], int, bool]:
        """Best extensions of each sentence's hypotheses: totals, added, parents, tokens ``[sentences, candidates]``.

        Behind the candidates, whose number is returned too, follow the ``beam_size`` best that do not end. True if any
        of the candidates ends.
        """
        (sentences, live), logits, totals = totals.shape, logits.contiguous(), totals.contiguous()
        normalizers = normalizers.contiguous()
        if len(logits) != sentences * live or normalizers.shape != logits.shape[:1]:
            raise ValueError(f"{len(logits)} rows of logits for {sentences} sentences of {live} hypotheses")
        each = min(2 * beam_size, logits.size(1))
        count = min(2 * beam_size, live * each)
        beam_size = min(beam_size, count)
        reached, added = totals.new_empty(2, sentences, count + beam_size).unbind()
        parents, tokens = torch.empty(2, *reached.shape, dtype=torch.long).unbind()
        call = Extension(sentences, live, logits.size(1), each, count, beam_size, end)
        call.logits, call.normalizers, call.totals = logits.data_ptr(), normalizers.data_ptr(), totals.data_ptr()
        call.reached, call.added, call.parents, call.tokens = (x.data_ptr() for x in (reached, added, parents, tokens))
        self._kernels.extend(call)
        return (reached, added, parents, tokens), count, call.ended > 0


@dataclass(frozen=True)
class Execution:
    """Properties of the engine of a decodable model, its attribute ``execution``; the defaults are PyTorch's."""

    search_kernels: SearchKernels | None = None
    """Kernels for the steps of a search; None: PyTorch."""
    in_threads: bool = False
    """True if batches may be searched in parallel, one core each. A trace and hooks see one batch after the other."""
    max_source_tokens: int | None = None
    """Source tokens beyond which a larger batch is no faster, with a cache; None: no limit."""
    copies_weights: bool = False
    """True if the model holds copies of weights, which writes to the weights do not reach."""

    @staticmethod
    def of(model: object) -> "Execution":
        return getattr(model, "execution", PLAIN)


PLAIN = Execution()


def _groups(first: list[int]) -> list[tuple[int, int]]:
    """Ranges of sentences with about ``TOKENS_AT_ONCE`` tokens each."""
    ranges, start = [], 0
    for stop in range(1, len(first)):
        if first[stop] - first[start] >= TOKENS_AT_ONCE or stop == len(first) - 1:
            ranges.append((start, stop))
            start = stop
    return ranges
