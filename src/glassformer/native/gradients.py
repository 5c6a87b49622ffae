"""Gradients that belong to nobody else, changed in place."""

import torch
from torch import Tensor

from glassformer.native.abi import RowSum
from glassformer.native.library import loaded
from glassformer.native.ops import readable, single_on_cpu


def scale_(gradient: Tensor, factor: Tensor) -> Tensor:
    """``gradient`` · ``factor``, a single number."""
    if not readable(gradient) or not gradient.is_contiguous():
        return gradient.mul_(factor)
    low = gradient.dtype == torch.bfloat16
    loaded().scale_numbers(gradient.data_ptr(), gradient.numel(), low, factor.item(), torch.get_num_threads())
    return gradient


def add_(total: Tensor, gradient: Tensor) -> Tensor:
    """``total`` + ``gradient``, which may be sparse: some rows of a matrix."""
    if not gradient.is_sparse or not gradient.is_coalesced() or (gradient.sparse_dim(), gradient.dense_dim()) != (1, 1):
        return total.add_(gradient)
    rows, values = gradient.indices()[0].contiguous(), gradient.values().contiguous()
    if not single_on_cpu(total, values) or not total.is_contiguous() or total.shape != gradient.shape:
        return total.add_(gradient)
    call = RowSum(rows.data_ptr(), *values.shape, len(total), values.data_ptr(), total.data_ptr())
    call.threads = torch.get_num_threads()
    loaded().add_matrix_rows(call)
    return total
