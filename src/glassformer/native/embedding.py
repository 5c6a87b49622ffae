"""Rows of an embedding with their positions and dropout in one pass, and the gradient in another."""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from glassformer.native.abi import Embedding
from glassformer.native.library import kernels
from glassformer.native.ops import WHOLE_PANELS, kernels_for, random_seed


def can_embed(matrix: Tensor) -> bool:
    """Whether the kernels compute with this matrix."""
    return matrix.size(1) % WHOLE_PANELS == 0 and matrix.is_contiguous() and kernels_for(matrix) is not None


def embedded(
    ids: Int[Tensor, "batch length"],
    used: Bool[Tensor, "#batch length"] | None,
    matrix: Float[Tensor, "vocab d_model"],
    scale: float,
    places: Int[Tensor, "#batch length"] | None,
    table: Float[Tensor, "positions d_model"] | None,
    threshold: int,
) -> Float[Tensor, "batch length d_model"] | None:
    """``scale`` · matrix[ids] + table[places], of which ``threshold`` / 256 are dropped; 0 where nothing is ``used``.

    An id beyond the matrix raises ``IndexError``. None where the kernels do not compute it.
    """
    if not can_embed(matrix) or (table is not None and not can_embed(table)):
        return None
    return _Embedded.apply(ids, used, scale, places, threshold, matrix, table)


class _Embedded(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        ids: Tensor,
        used: Tensor | None,
        scale: float,
        places: Tensor | None,
        threshold: int,
        matrix: Tensor,
        table: Tensor | None,
    ) -> Tensor:
        ids = ids.long().contiguous()
        places, used = (None if each is None else each.expand_as(ids).contiguous() for each in (places, used))
        ctx.save_for_backward(ids, places, used)
        ctx.settings = scale, threshold, random_seed() if threshold else 0
        ctx.shapes = [None if each is None else each.shape for each in (matrix, table)]
        x, made = matrix.new_empty(*ids.shape, matrix.size(1)), kernels()
        assert made is not None
        call = _call(ctx, ids, places, used)
        call.matrix, call.table = (None if each is None else each.data_ptr() for each in (matrix, table))
        call.x = x.data_ptr()
        made.embed(call, False)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_x: Tensor) -> tuple[Tensor | None, ...]:
        d_x, made = d_x.contiguous(), kernels()
        assert made is not None
        gradients = [
            d_x.new_empty(shape) if wanted else None
            for shape, wanted in zip(ctx.shapes, ctx.needs_input_grad[-2:], strict=True)
        ]
        call = _call(ctx, *ctx.saved_tensors)
        call.d_x = d_x.data_ptr()
        call.d_matrix, call.d_table = (None if each is None else each.data_ptr() for each in gradients)
        made.embed(call, True)
        return None, None, None, None, None, *gradients


def _call(ctx: Any, ids: Tensor, places: Tensor | None, used: Tensor | None) -> Embedding:
    (rows, d_model), table = ctx.shapes
    call = Embedding(ids.numel(), d_model, ids.data_ptr())
    call.places = None if places is None else places.data_ptr()
    call.used = None if used is None else used.data_ptr()
    call.matrix_rows, call.table_rows = rows, 0 if table is None else table[0]
    call.scale, call.threshold, call.seed = ctx.settings
    call.threads = torch.get_num_threads()
    return call
