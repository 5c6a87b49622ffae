"""Rotary positions: scores depend on the distance alone; complex and real products are equal."""

import subprocess

import pytest
import torch

from glassformer import trace
from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.dropout import Dropout
from glassformer.layers.position import Rotary
from own_process import running


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    rotary, q, k = Rotary(6), *torch.randn(2, 1, 2, 1, 6, dtype=torch.float64)

    def score(query: int, key: int) -> torch.Tensor:
        return (rotary(q, k, query)[0] * rotary(q, k, key)[1]).sum(-1)

    for distance in (0, 1, 7):
        for shift in (1, 2, 500):
            one, other = score(distance, 0), score(distance + shift, shift)
            torch.testing.assert_close(one, other, atol=1e-10, rtol=0)
    assert not torch.allclose(score(0, 0), score(1, 0))
    torch.testing.assert_close(rotary(q, k, 9)[0].norm(dim=-1), q.norm(dim=-1), atol=1e-12, rtol=0)


def test_rotary_attention_reads_the_distance_and_not_the_place() -> None:
    """The same token at every place: all scores of a diagonal are one number."""
    module = MultiHeadAttention(8, 2, 6, 4, Dropout(0.0), rotary=Rotary(6)).double().eval()
    x = torch.randn(1, 1, 8, dtype=torch.float64).expand(1, 5, 8)
    with trace(module) as recorded:
        module(x)
    scores = recorded["scores"]
    for distance in range(-4, 5):
        diagonal = scores.diagonal(distance, dim1=-2, dim2=-1)
        torch.testing.assert_close(diagonal, diagonal[..., :1].expand_as(diagonal), atol=1e-12, rtol=0)
    assert scores[0, 0, 0].unique().numel() == 5


def test_rotary_angles_are_exact_in_any_model_dtype() -> None:
    q = torch.randn(1, 1, 3, 8, dtype=torch.float64)
    torch.testing.assert_close(Rotary(8).bfloat16()(q, q, 1000), Rotary(8)(q, q, 1000), rtol=0, atol=0)


@pytest.mark.parametrize("d_head", [6, 8, 64])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_rotary_is_the_same_for_graphs_that_are_exported(
    dtype: torch.dtype, d_head: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There by sines and cosines, here by complex numbers; gradients too."""
    q, wanted = (torch.randn(2, 5, 3, d_head).to(dtype).transpose(1, 2) for _ in range(2))
    found = []
    for exported in (False, True):
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda exported=exported: exported)
        x = q.clone().requires_grad_()
        turned, again = Rotary(d_head)(x, x[:, 1:3], 3)
        assert torch.equal(again, turned[:, 1:3])  # keys, of fewer heads, turn as queries do
        (turned * wanted).sum().backward()
        found.append((turned.detach(), x.grad))
        assert turned.dtype == dtype
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-2}[dtype]
    torch.testing.assert_close(found[0], found[1], atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rotary_while_training_rounds_once(dtype: torch.dtype) -> None:
    """Every entry, and every entry of its gradient, is that of float64 to the precision of its own type."""
    exact = torch.randn(3, 7, 2, 3, 64, dtype=torch.float64)[:, :, 1].transpose(1, 2).to(dtype).double()
    found = []
    for x in (exact.to(dtype).requires_grad_(), exact.clone().requires_grad_()):
        turned, _ = Rotary(64)(x, x, 5)
        (gradient,) = torch.autograd.grad(turned, x, exact.flip(0).to(turned.dtype))
        found.append((turned.detach().double(), gradient.double()))
    unit = torch.finfo(dtype).eps
    torch.testing.assert_close(found[0], found[1], rtol=unit, atol=unit)


COMPILED = """
import torch
from glassformer.layers.position import Rotary

rotary, offsets = Rotary(6), torch.tensor([4, 0])
compiled = torch.compile(rotary, backend="aot_eager", fullgraph=True, dynamic=True)
for length in (5, 9, 17):
    q, k = torch.randn(2, 4, length, 6).bfloat16(), torch.randn(2, 2, length, 6).bfloat16()
    for offset in (0, offsets):
        torch.testing.assert_close(compiled(q, k, offset), rotary(q, k, offset))
    print("equal")
"""


def test_compiled_rotary_equals_complex_products_without_a_graph_break() -> None:
    """In a separate process, because the compiler cannot trace the shape checks of tests."""
    process = running("-W", "ignore", "-c", COMPILED, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, errors = process.communicate()
    assert output == "equal\n" * 3, errors
