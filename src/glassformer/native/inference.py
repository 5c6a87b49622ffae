"""Inference: the models that the kernels compute from packed weights, and their forms."""

from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from glassformer.layers.block import Stack, select_tokens
from glassformer.layers.embedding import OutputProjection, SegmentEmbedding, TokenEmbedding
from glassformer.layers.mask import Sentences
from glassformer.layers.position import Learned
from glassformer.models.bert import BERT, Pooling
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.gpt import GPT
from glassformer.models.series import SeriesModel
from glassformer.models.vit import ViT
from glassformer.native.abi import POOLINGS
from glassformer.native.blocks import unsupported_class, unsupported_norm
from glassformer.native.decoding import NativeDecoder, NativeGPT
from glassformer.native.execution import Execution
from glassformer.native.forms import blank, swap
from glassformer.native.library import Kernels
from glassformer.native.ops import single_on_cpu
from glassformer.native.packed import DROPOUTS, PackedEncoder, pack_encoder, unsupported_stack
from glassformer.native.projections import PROJECTIONS, packed_projection
from glassformer.taps import has_hooks

ENCODERS = (BERT, ViT, SeriesModel)
"""Models whose stack reads full sequences. The kernels compute the stack and the linear
transformations outside it, PyTorch the small remainder."""


def unsupported_model(model: nn.Module, precision: str) -> str | None:
    """Reason why the kernels do not compute ``model`` on a CPU in ``precision``, or None."""
    if type(model) not in (EncoderDecoder, GPT, *ENCODERS):
        return f"no kernel for a {type(model).__name__}"
    if precision == "bfloat16":
        return "precision=bfloat16 is for GPUs"
    if any(parameter.dtype != torch.float32 for parameter in model.parameters()):
        return "the kernels read float32 weights, not bfloat16"
    if any(has_hooks(module) or module.training for module in model.modules()):
        return "hooks, or modules in training mode"
    encodes = {id(child) for name, child in model.named_children() if name == "encoder"}
    for module in model.modules():
        reason = None
        if isinstance(module, Stack):
            crosses = type(model) is EncoderDecoder and id(module) not in encodes
            reason = unsupported_stack(module, crosses)
        elif isinstance(module, TokenEmbedding) and type(model) not in ENCODERS:
            reason = _unsupported_embedding(module)
        elif isinstance(module, OutputProjection):
            reason = unsupported_class(module, (OutputProjection,))
        if reason:
            return reason
    return None


def inference_form(model: nn.Module, int8: bool, kernels: Kernels) -> Any:
    """A model of the same interface with packed copies of the weights; see ``unsupported_model``."""
    if type(model) is EncoderDecoder:
        return NativeDecoder(model, kernels, int8)
    if type(model) is GPT:
        return NativeGPT(model, kernels, int8)
    embedding = cast(TokenEmbedding, model.embedding) if _has_known_embedding(model) else None
    inside = {id(part) for stack in model.modules() if isinstance(stack, Stack) for part in stack.modules()}

    def packed(module: nn.Module) -> nn.Module | None:
        if type(module) is Stack:
            return pack_encoder(module, kernels, int8, embedding)
        return None if id(module) in inside else packed_projection(module, kernels)

    form = swap(model, packed)
    form.execution = Execution(in_threads=True, copies_weights=True)
    if embedding is not None:
        form.__class__ = PackedBERT
    return form


class PackedBERT(BERT):
    """BERT whose embeddings are computed by the kernels too. Padding is skipped."""

    def hidden(
        self,
        tokens: Int[Tensor, "batch length"],
        mask: Sentences | None = None,
        segments: Int[Tensor, "batch length"] | None = None,
        selected: Int[Tensor, " selected"] | None = None,
    ) -> Float[Tensor, "*tokens d_model"]:
        used = _used(tokens, mask)
        if not self._by_kernels(tokens, used, segments):
            return super().hidden(tokens, mask, segments, selected)
        return select_tokens(self._encode(tokens, used, segments, None), selected)

    def embed(
        self,
        tokens: Int[Tensor, "batch length"],
        mask: Sentences | None = None,
        segments: Int[Tensor, "batch length"] | None = None,
        pooling: Pooling = "mean",
    ) -> Float[Tensor, "batch d_model"]:
        used = _used(tokens, mask)
        if tokens.size(1) == 0 or pooling not in POOLINGS or not self._by_kernels(tokens, used, segments):
            return super().embed(tokens, mask, segments, pooling)
        return self._encode(tokens, used, segments, pooling)

    def _encode(
        self,
        tokens: Int[Tensor, "batch length"],
        used: Bool[Tensor, "batch length"],
        segments: Int[Tensor, "batch length"] | None,
        pooling: Pooling | None,
    ) -> Float[Tensor, "batch *length d_model"]:
        positions = cast(Learned, self.embedding.position)(0, tokens.size(1))
        tables = positions, cast(SegmentEmbedding, self.embedding.segment).weight
        return cast(PackedEncoder, self.encoder).encode_texts(tokens, used, segments, tables, pooling)

    def _by_kernels(self, tokens: Tensor, used: Tensor, segments: Tensor | None) -> bool:
        """True if the kernels compute this pass; the model itself broadcasts masks and refuses other types."""
        embedding, encoder = self.embedding, self.encoder
        indices = (tokens,) if segments is None else (tokens, segments)
        if not isinstance(encoder, PackedEncoder) or used.shape != tokens.shape:
            return False
        if any(
            one.shape != tokens.shape or not one.is_cpu or one.dtype not in (torch.int32, torch.int64)
            for one in indices
        ):
            return False
        if any(part.training or has_hooks(part) for part in (*embedding.modules(), encoder)):
            return False
        unchanged = encoder.structure.embedding == embedding.weight.data_ptr() and _known_embedding(embedding)
        if not unchanged or not single_on_cpu(*embedding.parameters()):
            return False
        tables = cast(Learned, embedding.position).weight, cast(SegmentEmbedding, embedding.segment).weight
        return all(table.size(1) == encoder.structure.d_model for table in tables) and encoder.computes(used)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A copy is a ``BERT``: the packed weights belong to this form."""
        return blank, (BERT,), self.__dict__


def _used(tokens: Int[Tensor, "batch length"], mask: Sentences | None) -> Sentences:
    return torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask


def native_parts(model: nn.Module) -> set[str]:
    """Parts of ``model`` that ``inference_form`` computes in the kernels."""
    if type(model) not in ENCODERS:
        return {name for name, _ in model.named_children()}
    whole = {name for name, child in model.named_children() if isinstance(child, Stack) or type(child) in PROJECTIONS}
    return whole | ({"embedding"} if _has_known_embedding(model) else set())


def _has_known_embedding(model: nn.Module) -> bool:
    return type(model) is BERT and _known_embedding(model.embedding)


def _known_embedding(embedding: TokenEmbedding) -> bool:
    """True if the classes of ``embedding`` are those of BERT."""
    parts = (embedding, embedding.position, embedding.segment)
    return (
        tuple(map(type, parts)) == (TokenEmbedding, Learned, SegmentEmbedding)
        and embedding.norm is not None
        and unsupported_norm(embedding.norm) is None
        and unsupported_class(embedding.dropout, DROPOUTS) is None
    )


def _unsupported_embedding(embedding: TokenEmbedding) -> str | None:
    if type(embedding) is not TokenEmbedding or embedding.segment is not None:
        return "another class of embeddings, or segments"
    reason = None if embedding.norm is None else unsupported_norm(embedding.norm)
    return reason or unsupported_class(embedding.dropout, DROPOUTS)
