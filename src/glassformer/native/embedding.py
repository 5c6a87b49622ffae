"""Embeddings and the output projection in training: each in one kernel, the projection with its loss."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from glassformer.layers.dropout import Dropout
from glassformer.layers.embedding import OutputProjection, TokenEmbedding, positions_in_table
from glassformer.layers.mask import Sentences
from glassformer.layers.position import Offset
from glassformer.native import abi
from glassformer.native.blocks import norm_settings
from glassformer.native.gradients import scale_
from glassformer.native.library import loaded
from glassformer.native.ops import PANEL_WIDTH, address, computable, computes_gradient, in_rows, random_seed
from glassformer.native.shared_matrix import Use
from glassformer.taps import has_hooks


class NativeEmbedding(TokenEmbedding):
    """Embeddings, what is added to them, norm and dropout in one pass, and gradients in another, while training."""

    use_weight: Use = Use()
    """Node of ``weight`` in the graph; another one in modules that share it."""

    def forward(
        self,
        ids: Int[Tensor, "batch length"],
        sentences: Sentences | None = None,
        offset: Offset = 0,
        segments: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch length d_model"]:
        norm, normalization = self.norm, norm_settings(self.norm)
        parts = self.dropout, self.position, self.segment, norm
        fits = isinstance(offset, int) and self.training and computes_gradient(self.weight)
        fits = fits and (norm is None) == (normalization is None)
        fits = fits and (segments is None or not segments.is_floating_point())
        if not fits or any(part is not None and has_hooks(part) for part in parts):
            return super().forward(ids, sentences, offset, segments)
        positions, table = None, None
        if self.position is not None and sentences is not None and sentences.dtype != torch.bool:
            positions, table = positions_in_table(self.position, sentences)
        elif self.position is not None:
            positions = torch.arange(ids.size(1), device=ids.device)
            table = self.position(offset, ids.size(1))
        segment_table = None if self.segment is None else cast(Tensor, self.segment.weight)
        weights: tuple[Any, ...]
        weights = self.weight, table, segment_table, getattr(norm, "weight", None), getattr(norm, "bias", None)
        widths = {w.size(-1) for w in weights if w is not None}
        alike = in_rows(weights, torch.float32) and len(widths) == 1 and not widths.pop() % PANEL_WIDTH
        if not alike or not ids.is_cpu or (segments is not None and not segments.is_cpu):
            return super().forward(ids, sentences, offset, segments)
        settings = EmbeddingSettings(self.scale, cast(Dropout, self.dropout).active_threshold, normalization)
        indices = ids, positions, segments, None if sentences is None else sentences != 0
        result: Tensor = _Embedded.apply(settings, indices, self.use_weight(self.weight), *weights[1:])
        return result


class EmbeddingSettings(NamedTuple):
    """Settings of an embedding."""

    scale: float
    threshold: int
    """Dropout rate · 256."""
    norm: tuple[float, bool] | None
    """Epsilon, and whether it is RMSNorm."""


class _Embedded(torch.autograd.Function):
    """``scale`` · matrix[ids] + table[positions] + segment_table[segments], normalized, with dropout.

    The sum is 0 where ``used`` is False. An id or a segment beyond its matrix raises ``IndexError``. The gradient of
    ``matrix`` is sparse: the rows that were read.
    """

    @staticmethod
    def forward(
        ctx: Any,
        settings: EmbeddingSettings,
        indices: tuple[Tensor | None, ...],
        matrix: Tensor,
        *weights: Tensor | None,
    ) -> Tensor:
        """``weights``: the tables of positions and of segments, γ and β."""
        ids, positions, segments, used = indices
        ids = cast(Tensor, ids).long().contiguous()
        positions, segments = (None if each is None else each.long() for each in (positions, segments))
        others = [None if each is None else each.expand_as(ids).contiguous() for each in (positions, segments, used)]
        read = (matrix, *weights) if settings.norm else ()  # the norm's gradient computes the sums again
        ctx.save_for_backward(ids, *others, *read)
        ctx.settings, ctx.seed = settings, random_seed() if settings.threshold else 0
        ctx.shapes = [None if each is None else each.shape for each in (matrix, *weights)]
        x = matrix.new_empty(*ids.shape, matrix.size(1))
        call = _embedding_call(ctx, (ids, *others), (matrix, *weights))
        call.x = x.data_ptr()
        loaded().embed_rows(call, False)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_x: Tensor) -> tuple[Tensor | None, ...]:
        d_x, saved = d_x.contiguous(), ctx.saved_tensors  # read once: a hook may make new ones, which the call needs
        ids = saved[0]
        call = _embedding_call(ctx, saved[:4], saved[4:])
        call.d_x = d_x.data_ptr()
        needs_matrix, *needed = ctx.needs_input_grad[2:]
        rows = torch.empty_like(ids).flatten() if needs_matrix else None
        d_rows = d_x.new_empty(call.tokens, call.d_model) if needs_matrix else None
        needed[2:] = [bool(ctx.settings.norm)] * 2  # the kernel writes both
        tables = zip(ctx.shapes[1:], needed, strict=True)
        gradients = [d_x.new_empty(shape) if shape is not None and needs else None for shape, needs in tables]
        call.rows, call.d_rows, call.d_table, call.d_segments = map(address, (rows, d_rows, *gradients[:2]))
        call.norm.weight.gradient, call.norm.bias.gradient = map(address, gradients[2:])
        loaded().embed_rows(call, True)
        d_matrix = None
        if rows is not None and d_rows is not None:
            read = rows[None, : call.n_rows], d_rows[: call.n_rows]
            d_matrix = torch.sparse_coo_tensor(*read, ctx.shapes[0], check_invariants=False, is_coalesced=True)
        return None, None, d_matrix, *gradients


def _embedding_call(ctx: Any, indices: Sequence[Tensor | None], weights: Sequence[Tensor | None]) -> abi.Embedding:
    """``weights``: as ``_Embedded`` has them, the matrix first; none where the kernel reads none."""
    (rows, d_model), table, segment_table, *_ = ctx.shapes
    call = abi.Embedding(cast(Tensor, indices[0]).numel(), d_model)
    call.ids, call.positions, call.segments, call.mask = map(address, indices)
    call.matrix_rows = rows
    call.table_rows, call.segment_rows = (0 if shape is None else shape[0] for shape in (table, segment_table))
    if weights:
        call.matrix, call.table, call.segment_table = map(address, weights[:3])
    if ctx.settings.norm:
        call.norm.weight.value, call.norm.bias.value = map(address, weights[3:])
        call.norm.epsilon, call.norm.rms = ctx.settings.norm
    call.scale, call.threshold, call.seed = ctx.settings.scale, ctx.settings.threshold, ctx.seed
    call.threads = torch.get_num_threads()
    return call


class NativeOutputProjection(OutputProjection):
    """Output projection and cross-entropy in one kernel, which never stores all logits."""

    use_weight: Use = Use()
    """Node of ``weight`` in the graph; another one in modules that share it."""

    def computes(self, hidden: Tensor, target: Tensor) -> bool:
        """True if ``cross_entropy`` can read these tensors and the weights, which may have been replaced."""
        return _readable(hidden, target, self.weight, self.bias)

    def cross_entropy(
        self, hidden: Float[Tensor, "tokens d_model"], target: Int[Tensor, " tokens"], smoothing: float
    ) -> tuple[Tensor, Tensor]:
        """Label-smoothed cross-entropy and −log p of ``target``, sums over tokens in nats (``train.loss``).

        Raises ``ValueError`` if the sizes do not fit each other, or if ``computes(hidden, target)`` is False.
        """
        weight = self.use_weight(self.weight)
        if hidden.shape != (len(target), weight.size(1)) or target.dim() != 1:
            raise ValueError(
                f"hidden {list(hidden.shape)} and targets {list(target.shape)} do not fit each other "
                f"or d_model={weight.size(1)}"
            )
        if not _readable(hidden, target, weight, self.bias):
            raise ValueError(
                f"the kernel cannot read hidden states of {hidden.dtype} with these weights; give float32 hidden "
                f"states and contiguous float32 weights on a CPU, of a width that is a multiple of {PANEL_WIDTH}"
            )
        loss, nll = _CrossEntropy.apply(hidden, weight, self.bias, target, smoothing)
        return loss, nll


def _readable(hidden: Tensor, target: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    fits = in_rows((weight, bias), torch.float32) and (bias is None or bias.shape == weight.shape[:1])
    fits = fits and weight.size(1) > 0 and not weight.size(1) % PANEL_WIDTH
    return fits and hidden.is_cpu and target.is_cpu and computable(hidden.dtype)


class _CrossEntropy(torch.autograd.Function):
    """Cross-entropy. The forward pass also computes the gradients, and the backward pass scales them in place.

    A second backward pass of the same graph computes them again.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        hidden, target = hidden.contiguous(), target.long().contiguous()
        ctx.save_for_backward(hidden, weight, bias, target)
        ctx.smoothing = smoothing
        call, ctx.gradients = _projected_loss(hidden, weight, bias, target, smoothing, any(ctx.needs_input_grad))
        # Two tensors instead of two views of one, which could not be changed in place.
        loss = torch.tensor((1 - smoothing) * call.nll + smoothing * call.smooth, dtype=weight.dtype)
        nll = torch.tensor(call.nll, dtype=weight.dtype)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_loss: Tensor, d_nll: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            hidden, weight, bias, target = ctx.saved_tensors
            _, gradients = _projected_loss(hidden, weight, bias, target, ctx.smoothing, True)
        return *(None if gradient is None else scale_(gradient, d_loss) for gradient in gradients), None, None


def _projected_loss(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float, needed: bool
) -> tuple[abi.ProjectedLoss, tuple[Tensor | None, ...]]:
    """The call of the kernel, with its results; gradients of ``hidden``, ``weight`` and ``bias`` if ``needed``."""
    empty = torch.empty_like if len(hidden) else torch.zeros_like  # without tokens nothing is written
    call = abi.ProjectedLoss(len(hidden), *weight.shape, hidden.data_ptr(), weight.data_ptr())
    call.bias, call.target = address(bias), target.data_ptr()
    call.smoothing, call.bfloat16 = smoothing, hidden.dtype == torch.bfloat16
    gradients = tuple(None if x is None or not needed else empty(x) for x in (hidden, weight, bias))
    call.d_hidden, call.d_weight, call.d_bias = map(address, gradients)
    call.threads = torch.get_num_threads()
    loaded().projected_cross_entropy(call)
    return call, gradients
