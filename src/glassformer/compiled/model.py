"""An encoder–decoder whose searches run in the compiled kernels."""

import ctypes
from dataclasses import dataclass, field
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer.compiled.weights import ACTIVATION_NUMBERS, Packed
from glassformer.config import ConfigError
from glassformer.layers.block import Block
from glassformer.layers.feed_forward import FeedForward
from glassformer.layers.position import Rotary
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.precision import fast_in_bfloat16, for_decoding
from glassformer.native.abi import Linear, Past, Turns
from glassformer.native.library import Kernels, kernels
from glassformer.native.ops import turning_tables

ROOM = 32
"""Positions there is room for at first; then twice as many."""
TOKENS_AT_ONCE = 256
"""Of whole sentences in the encoder: what is computed of them then stays in the second-level cache."""


@dataclass
class CompiledState:
    """What a search carries. No key or value is ever copied: rows remember in which row each position was written.

    They are in bfloat16 where products are in eight bits, which are less exact.
    """

    memory: list[Tensor]
    """Of each layer, the keys and values of all source tokens, ``[tokens, heads · (d_k + d_v)]``."""
    first: Int[Tensor, " sentences"]
    length: Int[Tensor, " sentences"]
    """Where the tokens of each sentence begin in the memory, and how many they are."""
    ancestor: Int[Tensor, "rows room"]
    logits: Tensor | None = None
    """Written anew at every step."""
    past: list[Tensor] = field(default_factory=list)
    """Of each position, ``[layers, rows of that step, heads · (d_k + d_v)]``."""

    def __post_init__(self) -> None:
        self._memory = (ctypes.c_void_p * len(self.memory))(*(one.data_ptr() for one in self.memory))
        self._past, self._past_rows = (ctypes.c_void_p * ROOM)(), (ctypes.c_int64 * ROOM)()

    def select(self, rows: Tensor) -> None:
        """Keep these hypotheses, in this order."""
        self.ancestor = self.ancestor[rows]

    def select_sentences(self, sentences: Tensor) -> None:
        """Keep the memory of these sentences, in this order."""
        self.first, self.length = self.first[sentences], self.length[sentences]

    def further(self, layers: int, rows: int) -> Past:
        """Room for one more position of ``rows`` hypotheses, and all they have behind them."""
        position = len(self.past)
        if position == len(self._past):
            room = 2 * position
            self.ancestor = F.pad(self.ancestor, (0, room - position))
            self._past = (ctypes.c_void_p * room)(*self._past)
            self._past_rows = (ctypes.c_int64 * room)(*self._past_rows)
        if rows != self.ancestor.size(0):  # hypotheses of a sentence that had one
            self.ancestor = self.ancestor.repeat_interleave(rows // max(1, self.ancestor.size(0)), 0)
        self.past.append(newest := self.memory[0].new_empty(layers, rows, self.memory[0].size(1)))
        self._past[position], self._past_rows[position] = newest.data_ptr(), rows
        return Past(
            position + 1,
            self._past,
            self._past_rows,
            self.ancestor.data_ptr(),
            self.ancestor.size(1),
            self._memory,
            self.first.data_ptr(),
            self.length.data_ptr(),
            rows // self.first.size(0),
            self.memory[0].dtype == torch.bfloat16,
        )


@dataclass(frozen=True)
class _Turns:
    """Tables of rotary positions, and where they are."""

    length: int
    tables: tuple[Tensor, ...]
    structure: Turns

    @classmethod
    def of(cls, rotary: Rotary, length: int) -> "_Turns":
        tables = turning_tables(rotary.angles(length, torch.device("cpu")))
        return cls(length, tables, Turns(*(table.data_ptr() for table in tables)))


def why_not(model: EncoderDecoder, int8: bool = False) -> str | None:
    """What keeps ``model`` from being compiled, or None."""
    if type(model) is not EncoderDecoder or any(m._forward_hooks or m._forward_pre_hooks for m in model.modules()):
        return "a model that was changed is not compiled"
    if any(p.device.type != "cpu" or p.dtype != torch.float32 for p in model.parameters()):
        return "only float32 models on a CPU are compiled"
    if model.training:
        return "a model that is training is not compiled"
    layers = [module for module in model.modules() if isinstance(module, FeedForward)]
    if any(layer.activation not in ACTIVATION_NUMBERS for layer in layers):
        return "the kernels do not know this activation"
    if model.config.embedding != "scaled":
        return "the kernels do not know a normalised embedding"
    if (made := kernels()) is None:
        return "there are no compiled kernels"
    if int8 and not made.int8:
        return "this processor has no instruction for sums of eight-bit products"
    return None


def faster(model: EncoderDecoder, precision: str, compile: bool) -> "EncoderDecoder | CompiledModel":
    """What is searched instead of ``model``: the compiled form where there is one and ``compile`` asks for it.

    In bfloat16 there is none; where the processor has no bfloat16, it is float32.
    """
    if not isinstance(model, EncoderDecoder):
        if precision != "float32":
            raise ConfigError(f"precision={precision} is for the Transformer; this model decodes in float32")
        return model
    if precision == "bfloat16" and fast_in_bfloat16(next(model.parameters()).device):
        return for_decoding(model, torch.bfloat16)
    reason = why_not(model, precision == "int8") if compile else "decoding.compiled is false"
    if reason is None and (made := kernels()) is not None:
        return CompiledModel(model, made, precision == "int8")
    if precision == "int8":
        raise ConfigError(f"precision=int8 is not possible: {reason}; float32 and bfloat16 are")
    return model


class CompiledModel:
    """``begin`` and ``step`` of ``model`` with packed copies of its weights; everything else is ``model``'s own.

    The products of matrices are in float32, or with ``int8`` in eight bits: weights with a scale for each output,
    what they are multiplied with quantised row by row when it is known; the decoder keeps keys and values in bfloat16
    then, since waiting for them takes longer than computing with them. A row's logits are the same to the bit
    whatever rows are computed with it.
    """

    enough_tokens = 1024
    """More at once are 1 to 4 hundredths faster and take as many times the memory."""

    def __init__(self, model: EncoderDecoder, functions: Kernels, int8: bool = False):
        self.model = model
        self.functions = functions
        self.packed = Packed(functions, int8)
        self.kept = torch.bfloat16 if int8 else torch.float32
        self.encoder = self.packed.stack(model.config, model.encoder, model.source_embedding)
        self.decoder = self.packed.stack(model.config, model.decoder, model.target_embedding)
        self.output = self.packed.linear(model.output_projection)
        self.rotary = cast(Block, model.encoder.layers[0]).self_attention.rotary
        self._known = _Turns(0, (), Turns())

    def __call__(self, source: Tensor, target: Tensor, source_mask: Tensor) -> Tensor:
        return self.model(source, target, source_mask)

    def begin(
        self,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        use_cache: bool = True,
    ) -> Any:
        """Encode once; without a cache ``model`` itself is searched."""
        if not use_cache:
            return self.model.begin(source, source_mask, use_cache)
        lengths = source_mask.sum(1)
        ids, memory = source[source_mask].long(), self._positions(source_mask)
        first = F.pad(lengths.cumsum(0), (1, 0))
        turns = self._turns(source.size(1))
        projections = [self.decoder.layer[index].memory for index in range(self.decoder.layers)]
        seen = [memory.new_empty(len(ids), one.outputs, dtype=self.kept) for one in projections]
        for start, stop in _groups(first.tolist()):
            tokens, begins = slice(first[start], first[stop]), first[start : stop + 1] - first[start]
            some, x = ids[tokens], memory[tokens]
            where = some.data_ptr(), x.data_ptr(), begins.data_ptr()
            self.functions.encode(self.encoder, turns.structure, *where, stop - start)
            for one, kept in zip(projections, seen, strict=True):
                kept[tokens] = self._apply(one, x)
        ancestor = source.new_zeros(len(source), ROOM, dtype=torch.int32)
        return CompiledState(seen, first[:-1], lengths, ancestor)

    def step(self, tokens: Int[Tensor, "rows new"], state: Any) -> Float[Tensor, "rows vocab"]:
        """Logits after ``tokens``, valid until the next step."""
        if not isinstance(state, CompiledState):
            return self.model.step(tokens, state)
        rows, new = tokens.shape
        position = self.model.target_embedding.position
        if state.logits is None or state.logits.size(0) < rows:
            state.logits = state.memory[0].new_empty(rows, self.output.outputs, dtype=torch.float32)
        ids = tokens.t().long().contiguous()
        for first in range(ids.data_ptr(), ids.data_ptr() + ids.nbytes, ids.nbytes // new):
            place = None if position is None else position(len(state.past), 1)
            self.functions.decode(
                self.decoder,
                self._turns(len(state.past) + 1).structure,
                self.output,
                first,
                None if place is None else place.data_ptr(),
                rows,
                state.further(self.decoder.layers, rows),
                state.logits.data_ptr(),
            )
        return state.logits[:rows]

    def _positions(self, source_mask: Bool[Tensor, "batch source"]) -> Float[Tensor, "tokens d_model"]:
        """What is added to the embedding of each source token."""
        position = self.model.source_embedding.position
        if position is None:
            return self.model.source_embedding.weight.new_zeros(int(source_mask.sum()), self.encoder.d_model)
        return position(0, source_mask.size(1))[source_mask.nonzero()[:, 1]]

    def _turns(self, length: int) -> "_Turns":
        """Of ``length`` positions at least. Searches run side by side: tables are replaced, never changed."""
        if self.rotary is not None and length > self._known.length:
            self._known = _Turns.of(self.rotary, max(ROOM, 2 * length))
        return self._known

    def _apply(self, linear: Linear, x: Float[Tensor, "rows inputs"]) -> Float[Tensor, "rows outputs"]:
        y = x.new_empty(len(x), linear.outputs)
        self.functions.linear(linear, x.data_ptr(), len(x), y.data_ptr())
        return y


def _groups(first: list[int]) -> list[tuple[int, int]]:
    """Ranges of sentences with about ``TOKENS_AT_ONCE`` tokens each."""
    ranges, start = [], 0
    for stop in range(1, len(first)):
        if first[stop] - first[start] >= TOKENS_AT_ONCE or stop == len(first) - 1:
            ranges.append((start, stop))
            start = stop
    return ranges
