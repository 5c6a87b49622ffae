"""Decoding in the kernels: models with packed copies of their weights."""

import ctypes
from dataclasses import dataclass, field
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from glassformer.errors import ConfigError
from glassformer.layers.block import Block, Stack
from glassformer.layers.embedding import OutputProjection, TokenEmbedding
from glassformer.layers.position import Learned, end_of
from glassformer.layers.ragged import within_table
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.gpt import GPT
from glassformer.native.abi import DecoderCache, NewestTokens, PackedStack
from glassformer.native.beam_steps import BeamResult, BeamRules, Beams, beam_steps
from glassformer.native.execution import Execution, SearchKernels
from glassformer.native.library import Kernels
from glassformer.native.ops import address, check_boolean
from glassformer.native.packed import INITIAL_POSITIONS, Packed, RotaryCache, cu_seqlens_of, pads_behind
from glassformer.taps import all_hooks

MAX_SOURCE_TOKENS = 1024
"""Maximum source tokens of a batch; larger batches are 1 to 4 % faster, and memory grows in proportion."""


@dataclass
class NativeState:
    """State of a search. No key or value is copied: ``beam_index`` holds the row that wrote each step.

    ``first`` and ``length`` are those of the sentences of a source, or of the prompts of all rows (``of_rows``).
    """

    memory: list[Tensor]
    """Keys and values of all source or prompt tokens, one tensor for each layer, ``[tokens, heads · (d_k + d_v)]``."""
    first: Int[Tensor, " sentences"]
    length: Int[Tensor, " sentences"]
    """Index in the memory of each sentence's first token, and its number of tokens."""
    beam_index: Int[Tensor, "rows positions"]
    of_rows: bool = False
    shared: int = 0
    """Tokens at the beginning of the memory that are the prefix of every prompt."""
    logits: Tensor | None = None
    """Buffer that every step overwrites."""
    keys_values: list[Tensor] = field(default_factory=list)
    """Keys and values of each step, ``[layers, rows of that step, heads · (d_k + d_v)]``."""

    def __post_init__(self) -> None:
        self._note_lengths()
        self._memory = (ctypes.c_void_p * len(self.memory))(*(one.data_ptr() for one in self.memory))
        self._keys_values, self._rows = (ctypes.c_void_p * INITIAL_POSITIONS)(), (ctypes.c_int64 * INITIAL_POSITIONS)()

    def select(self, rows: Tensor) -> None:
        """Keep these hypotheses, in this order."""
        self.beam_index = self.beam_index[rows]
        if self.of_rows:
            self.first, self.length = self.first[rows], self.length[rows]
            self._note_lengths()

    def select_sentences(self, sentences: Tensor) -> None:
        """Keep the memory of these sentences, in this order."""
        if not self.of_rows:
            self.first, self.length = self.first[sentences], self.length[sentences]

    def _note_lengths(self) -> None:
        lengths = set(self.length.tolist()) if self.of_rows else set()
        self.same_length: int | None = lengths.pop() if len(lengths) == 1 else None
        """Length of all prompts, if they are equal. Their positions are then one number, which saves 40 µs a step."""

    def has_rows(self, rows: int) -> bool:
        """True if there are ``rows`` hypotheses, as many of each sentence."""
        sentences = len(self.first)
        return len(self.beam_index) == rows and (rows % sentences == 0 if sentences else rows == 0)

    def expand(self, rows: int) -> None:
        """Repeat each hypothesis, so that there are ``rows``."""
        sentences, before = len(self.first), len(self.beam_index)
        if rows and (not before or rows % before or not sentences or rows % sentences):
            raise ValueError(
                f"{rows} tokens for {before} hypotheses of {sentences} sentences; select as many hypotheses of each"
            )
        if rows != before:
            self.select(torch.arange(before).repeat_interleave(rows // max(1, before)))

    def append(self, layers: int, rows: int, steps: int = 1) -> DecoderCache:
        """Allocate memory for one step or more, and describe the cache to the kernels with the first of them."""
        done = len(self.keys_values)
        shape = layers, rows, self.memory[0].size(1)
        self.keys_values += [self.memory[0].new_empty(shape) for _ in range(steps)]
        size = len(self._rows)
        while size < done + steps:
            size *= 2
        if size > len(self._rows):
            self._keys_values = (ctypes.c_void_p * size)(*self._keys_values)
            self._rows = (ctypes.c_int64 * size)(*self._rows)
        if size > self.beam_index.size(1):
            self.beam_index = F.pad(self.beam_index, (0, size - self.beam_index.size(1)))
        for step in range(done, done + steps):
            self._keys_values[step], self._rows[step] = self.keys_values[step].data_ptr(), rows
        return DecoderCache(
            done + 1,
            self._keys_values,
            self._rows,
            self.beam_index.data_ptr(),
            self.beam_index.size(1),
            self._memory,
            self.first.data_ptr(),
            self.length.data_ptr(),
            rows // max(1, len(self.first)),
            self.shared,
            self.memory[0].dtype == torch.bfloat16,
        )


class _Decoder:
    """A stack that decodes, with its embedding and its output projection."""

    def __init__(self, packed: Packed, blocks: Stack, embedding: TokenEmbedding, output: OutputProjection):
        self.packed, self.embedding = packed, embedding
        self.structure = packed.stack(blocks, embedding)
        self.output = packed.linear(output)
        self.rotary = RotaryCache(cast(Block, blocks.layers[0]).self_attention.rotary)

    def step(
        self,
        ids: Int[Tensor, " rows"],
        position: Float[Tensor, "#rows d_model"] | None,
        longest: int,
        state: NativeState,
    ) -> Float[Tensor, "rows vocab"]:
        """Logits after one more token of each row. ``longest``: positions of the longest row."""
        rows, done = len(ids), len(state.keys_values)
        logits = self._logits(state, rows)
        position = None if position is None else position.contiguous()
        stride = 0 if position is None or len(position) == 1 else position.size(1)
        newest = NewestTokens(rows, ids.data_ptr(), address(position), stride, logits.data_ptr())
        try:
            self.packed.kernels.decode(
                self.structure,
                self.rotary.of(longest),
                self.output,
                newest,
                state.append(self.structure.n_layers, rows),
                torch.get_num_threads(),
            )
        except BaseException:  # also of PyTorch's allocator, and Ctrl-C
            del state.keys_values[done:]
            raise
        return logits[:rows]

    def search(self, before: int, state: NativeState, beams: Beams, rules: BeamRules, most: int) -> BeamResult | None:
        """Take ``most`` steps of a beam search, or fewer, after ``before`` positions; None if no position is left."""
        position, done, rows = self.embedding.position, len(state.keys_values), beams.total.numel()
        most = steps_within(position, before, most)
        if not most:
            return None
        encoding = None if position is None else position(before, most).contiguous()
        call, result = beam_steps(beams, rules, self._logits(state, rows), most)
        try:
            self.packed.kernels.search_beams(
                self.structure,
                self.rotary.of(before + most),
                self.output,
                address(encoding),
                state.append(self.structure.n_layers, rows, most),
                call,
                torch.get_num_threads(),
            )
        finally:
            del state.keys_values[done + call.done :]
        return result(call)

    def _logits(self, state: NativeState, rows: int) -> Float[Tensor, "buffered vocab"]:
        """Buffer of ``state`` for the logits of at least ``rows``."""
        if state.logits is None or state.logits.size(0) < rows:
            state.logits = self.embedding.weight.new_empty(rows, self.output.outputs)
        return state.logits


class _Form:
    """Model interface of the decoder, which delegates all but ``begin`` and ``step``."""

    model: Any
    hooks: list[Any]
    """Registries of the hooks of all modules in the model."""
    packed: Packed

    def _begins(self, use_cache: bool, source: Tensor, source_mask: Tensor) -> bool:
        """True if the kernels begin a search, False if the model itself does.

        Raises ``ValueError`` for a mask of another type than bool, which would index the source, and ``ConfigError``
        for a hook in a form of int8, which the model itself does not compute.
        """
        check_boolean(source_mask)
        if (hooks := any(self.hooks)) and self.packed.int8:
            raise ConfigError("precision=int8 is not possible: the model has hooks; remove them")
        on_cpu = source.is_cpu and source_mask.is_cpu
        return use_cache and not hooks and on_cpu and pads_behind(source_mask)

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        return self.model(*arguments, **more)

    def __getattr__(self, name: str) -> Any:
        if name == "model" or name.startswith("__"):  # while an object is copied
            raise AttributeError(name)
        return getattr(self.model, name)


class NativeDecoder(_Form):
    """``begin`` and ``step`` of ``model`` in the kernels, with packed copies of its weights.

    Matrix products are float32, or with ``int8`` eight-bit: weights with a scale for each output, activations quantized
    row by row; keys and values of the decoder are then bfloat16. The logits of a row are the same to the bit whatever
    rows are computed with it.
    """

    def __init__(self, model: EncoderDecoder, kernels: Kernels, int8: bool = False):
        self.model, self.hooks = model, all_hooks(model)
        self.execution = Execution(
            SearchKernels(kernels), in_threads=True, max_source_tokens=MAX_SOURCE_TOKENS, copies_weights=True
        )
        self.packed, self.packed_encoder = Packed(kernels, int8), Packed(kernels, int8, parts=True)
        self.encoder = self.packed_encoder.stack(model.encoder, model.source_embedding)
        self.encoder_rotary = RotaryCache(cast(Block, model.encoder.layers[0]).self_attention.rotary)
        self.decoder = _Decoder(self.packed, model.decoder, model.target_embedding, model.output_projection)

    def begin(
        self,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        use_cache: bool = True,
    ) -> Any:
        """Encode the source once. Without a cache, or with gaps in the source, return the state of ``model`` itself."""
        if not self._begins(use_cache, source, source_mask):
            return self.model.begin(source, source_mask, use_cache)
        lengths = source_mask.sum(1)
        first, memory = cu_seqlens_of(lengths), _positions(self.model.source_embedding, source_mask)
        encode(
            self.packed_encoder, self.encoder, self.encoder_rotary, source[source_mask], memory, first, source.size(1)
        )
        layers = [self.decoder.structure.layers[index] for index in range(self.decoder.structure.n_layers)]
        memory_keys_values = [self.packed.apply(one.cross_key, memory).to(self.packed.cache_dtype) for one in layers]
        return NativeState(memory_keys_values, first[:-1], lengths, _beam_index(source))

    def step(self, tokens: Int[Tensor, "rows new"], state: Any) -> Float[Tensor, "rows vocab"]:
        """Logits after ``tokens``, valid until the next step."""
        if not isinstance(state, NativeState):
            return self.model.step(tokens, state)
        state.expand(len(tokens))
        position = self.model.target_embedding.position
        for ids in tokens.t().to("cpu", torch.long).contiguous():
            done = len(state.keys_values)
            encoding = None if position is None else position(done, 1)
            logits = self.decoder.step(ids, encoding, done + 1, state)
        return logits

    def search_beams(self, state: Any, beams: Beams, rules: BeamRules, most: int) -> BeamResult | None:
        """Take ``most`` steps of a beam search, or fewer; None if they must be taken one by one."""
        if not isinstance(state, NativeState) or not state.has_rows(beams.total.numel()):
            return None
        return self.decoder.search(len(state.keys_values), state, beams, rules, most)


class NativeGPT(_Form):
    """``begin`` and ``step`` of a decoder-only ``model`` in the kernels, with packed copies of its weights.

    Prompts may have different lengths; nothing is padded. Precisions and bits are as in ``NativeDecoder``.
    """

    def __init__(self, model: GPT, kernels: Kernels, int8: bool = False):
        self.model, self.hooks = model, all_hooks(model)
        self.execution = Execution(SearchKernels(kernels), in_threads=True, copies_weights=True)
        self.packed = Packed(kernels, int8)
        self.decoder = _Decoder(self.packed, model.decoder, model.embedding, model.output_projection)

    def begin(
        self,
        source: Int[Tensor, "rows prompt"],
        source_mask: Bool[Tensor, "rows prompt"],
        use_cache: bool = True,
        prefix: list[Tensor] | None = None,
        shared: int = 0,
    ) -> Any:
        """Read the prompts without their last tokens, which the first ``step`` brings; padding stands on the right.

        ``prefix``: the memory of a prompt (``read``) that begins with the first ``shared`` tokens of every row.
        Raises ``ValueError`` if the mask has another shape than the prompts.
        """
        if source_mask.shape != source.shape:
            raise ValueError(f"the mask is {list(source_mask.shape)}, the prompts {list(source.shape)}; use one shape")
        if not self._begins(use_cache, source, source_mask):
            return self.model.begin(source, source_mask, use_cache)
        mask = source_mask[:, shared:]
        lengths = mask.sum(1)
        first = cu_seqlens_of(lengths)
        memory = self._memory(shared + int(first[-1]))
        for layer, one in zip(memory, prefix or [], strict=False):
            layer[:shared] = one[:shared]
        state = NativeState(
            memory,
            first[:-1],
            lengths,
            source.new_zeros(len(source), INITIAL_POSITIONS, dtype=torch.int32),
            True,
            shared,
        )
        if int(first[-1]):
            x, cache = _positions(self.model.embedding, mask, shared), DecoderCache()
            cache.memory, cache.shared, cache.bfloat16 = state._memory, shared, memory[0].dtype == torch.bfloat16
            ids, length = source[:, shared:][mask], shared + mask.size(1)
            encode(self.packed, self.decoder.structure, self.decoder.rotary, ids, x, first, length, cache)
        return state

    def read(self, ids: list[int]) -> list[Tensor]:
        """The memory of a prompt. Raises ``ConfigError`` if the model has hooks."""
        if any(self.hooks):
            raise ConfigError("the prompt cannot be read: the model has hooks; remove them")
        source = torch.tensor([ids])
        state: NativeState = self.begin(source, torch.ones_like(source, dtype=torch.bool))
        return state.memory

    def step(self, tokens: Int[Tensor, "rows new"], state: Any) -> Float[Tensor, "rows vocab"]:
        """Logits after ``tokens``, valid until the next step."""
        if not isinstance(state, NativeState):
            return self.model.step(tokens, state)
        state.expand(len(tokens))
        position = self.model.embedding.position
        for ids in tokens.t().to("cpu", torch.long).contiguous():
            done = state.shared + len(state.keys_values)
            offset = state.length + done if state.same_length is None else state.same_length + done
            longest = end_of(offset, 1)
            if isinstance(position, Learned) and isinstance(offset, Tensor):
                offset = within_table(position, offset, 1)
            encoding = None if position is None else position(offset, 1).flatten(0, -2)
            logits = self.decoder.step(ids, encoding, longest, state)
        return logits

    def search_beams(self, state: Any, beams: Beams, rules: BeamRules, most: int) -> BeamResult | None:
        """Take steps as ``NativeDecoder`` does; None also if prompts have different lengths."""
        if not isinstance(state, NativeState) or state.same_length is None or not state.has_rows(beams.total.numel()):
            return None
        before = state.shared + len(state.keys_values) + state.same_length
        return self.decoder.search(before, state, beams, rules, most)

    def _memory(self, tokens: int) -> list[Tensor]:
        """Allocate keys and values of ``tokens`` for each layer."""
        stack = self.decoder.structure
        width = stack.heads.n_kv_heads * (stack.heads.d_k + stack.heads.d_v)
        return list(torch.empty(stack.n_layers, tokens, width, dtype=self.packed.cache_dtype))


def steps_within(position: nn.Module | None, done: int, most: int) -> int:
    """Number of steps, at most ``most``, for which there are positions after the first ``done``; learned ones end."""
    return min(most, max(0, position.n_positions - done)) if isinstance(position, Learned) else most


def encode(
    packed: Packed,
    stack: PackedStack,
    rotary: RotaryCache,
    ids: Int[Tensor, " tokens"],
    x: Float[Tensor, "tokens d_model"],
    first: Int[Tensor, " ends"],
    longest: int,
    cache: DecoderCache | None = None,
) -> None:
    """Replace the positions in ``x`` by the output of ``stack``; a ``cache`` receives keys and values in its memory."""
    ids = ids.long()
    addresses = ids.data_ptr(), x.data_ptr(), first.data_ptr()
    packed.kernels.encode(stack, rotary.of(longest), *addresses, len(first) - 1, cache, torch.get_num_threads())


def _beam_index(source: Tensor) -> Int[Tensor, "rows positions"]:
    return source.new_zeros(len(source), INITIAL_POSITIONS, dtype=torch.int32)


def _positions(
    embedding: TokenEmbedding, mask: Bool[Tensor, "batch source"], offset: int = 0
) -> Float[Tensor, "tokens d_model"]:
    """Positional encoding of each token of ``mask``, from ``offset`` on."""
    position: nn.Module | None = embedding.position
    if position is None:
        return embedding.weight.new_zeros(int(mask.sum()), embedding.weight.size(1))
    encodings: Tensor = position(offset, mask.size(1))
    return encodings.index_select(0, mask.nonzero()[:, 1])  # plain indexing would wake PyTorch's threads, which spin
