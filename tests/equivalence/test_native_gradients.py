"""Gradients that the kernels scale or add have the same bits as PyTorch's."""

import pytest
import torch
from torch import Tensor

from glassformer.native.gradients import add_, scale_
from glassformer.native.library import kernels


@pytest.fixture(autouse=True)
def _kernels() -> None:
    if kernels() is None:
        pytest.skip("no kernels")


def sparse_rows(rows: list[int], values: Tensor, n_rows: int) -> Tensor:
    """As an embedding gives the gradients of the rows that it read."""
    indices = torch.tensor([rows], dtype=torch.long)
    size = n_rows, values.size(1)
    return torch.sparse_coo_tensor(indices, values, size, check_invariants=False, is_coalesced=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (0, 5), (1,), (37, 3), (300, 256)])
def test_scaling_is_multiplication(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    gradient, factor = torch.randn(shape).to(dtype), torch.tensor(1 / 1873)
    expected = gradient.clone().mul_(factor)
    assert scale_(gradient, factor) is gradient
    assert torch.equal(gradient, expected)


def test_a_gradient_with_strides_is_scaled() -> None:
    gradient = torch.randn(4, 6)
    expected = gradient / 2
    scale_(gradient.t(), torch.tensor(0.5))
    assert torch.equal(gradient, expected)


@pytest.mark.parametrize("rows", [[], [0], [1, 3, 4], list(range(200))])
@pytest.mark.parametrize("width", [1, 7, 64, 256])
def test_rows_are_added(rows: list[int], width: int) -> None:
    total, values = torch.randn(200, width), torch.randn(len(rows), width)
    sparse = sparse_rows(rows, values, len(total))
    expected = total + sparse
    assert add_(total, sparse) is total
    assert torch.equal(total, expected)


def test_other_gradients_are_added_too() -> None:
    """Dense, with a row twice, with strides, of another type."""
    values = torch.randn(3, 8)
    twice = torch.sparse_coo_tensor(torch.tensor([[2, 2, 4]]), values, (5, 8), check_invariants=True)
    for gradient in (torch.randn(5, 8), twice, twice.coalesce().double(), torch.randn(5, 8).to_sparse()):
        for total in (torch.randn(5, 8), torch.randn(8, 5).t(), torch.randn(5, 8).double()):
            if total.dtype == torch.float32 and gradient.dtype == torch.float64:
                continue  # PyTorch refuses it
            expected = total + gradient.to_dense().to(total.dtype)
            torch.testing.assert_close(add_(total, gradient), expected)


@pytest.mark.parametrize("wrong", [-1, 5])
def test_a_row_beyond_the_matrix_is_refused(wrong: int) -> None:
    total = torch.zeros(5, 8)
    sparse = sparse_rows([0, wrong], torch.ones(2, 8), 5)
    with pytest.raises(IndexError):
        add_(total, sparse)
    assert not total.any()
