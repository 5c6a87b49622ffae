"""Equation 1 computed by its definition, by the fused path and by PyTorch is one function."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer import trace
from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.dropout import Dropout
from glassformer.layers.mask import Mask, causal_mask

TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 2e-2}
BATCH, HEADS, D_K, D_V = 3, 2, 6, 4


def attention(dtype: torch.dtype = torch.float64) -> MultiHeadAttention:
    return MultiHeadAttention(8, HEADS, D_K, D_V, Dropout(0.0)).to(dtype).eval()


def tensors(length: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (torch.randn(BATCH, HEADS, length, d, dtype=torch.float64) for d in (D_K, D_K, D_V))
    return (2 * q).to(dtype), k.to(dtype), v.to(dtype)


def mask_of(kind: str, length: int) -> Mask | None:
    """The sentences of the batch have length, about half of it, and 1 real tokens."""
    keys = torch.arange(length) < torch.tensor([length, (length + 1) // 2, 1])[:, None]
    return {"none": None, "padding": Mask(keys), "causal": causal_mask(), "both": Mask(keys, causal=True)}[kind]


def dense(mask: Mask | None, length: int) -> Tensor | None:
    return None if mask is None else mask.dense(length, length)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("length", [1, 2, 9, 33, 64])
@pytest.mark.parametrize("kind", ["none", "padding", "causal", "both"])
def test_definition_fused_path_and_pytorch_agree(kind: str, length: int, dtype: torch.dtype) -> None:
    (q, k, v), mask, module = tensors(length, dtype), mask_of(kind, length), attention(dtype)
    with trace(module) as recorded:
        defined = module.attend(q, k, v, mask)
    seen = dense(mask, length)
    for other in (module.attend(q, k, v, mask), F.scaled_dot_product_attention(q, k, v, attn_mask=seen)):
        assert other.dtype == defined.dtype == dtype
        torch.testing.assert_close(defined, other, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    weights = recorded["weights"]
    sums = weights.double().sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), atol=TOLERANCE[dtype], rtol=0)
    if seen is not None:
        assert weights.masked_select(~seen.expand_as(weights)).count_nonzero() == 0


@pytest.mark.parametrize("path", ["definition", "fused"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_fully_masked_query_yields_zeros_and_finite_gradients(path: str, dtype: torch.dtype) -> None:
    allowed = torch.ones(BATCH, 1, 5, 5, dtype=torch.bool)
    allowed[1, :, 2], allowed[2] = False, False
    module, mask = attention(dtype), Mask(causal=True, allowed=allowed)
    inputs = [tensor.requires_grad_() for tensor in tensors(5, dtype)]
    if path == "definition":
        with trace(module):
            context = module.attend(*inputs, mask)
    else:
        context = module.attend(*inputs, mask)
    assert context[1, :, 2].count_nonzero() == 0
    assert context[2].count_nonzero() == 0
    assert context[0].count_nonzero() == context[0].numel()
    context.square().sum().backward()
    for tensor in inputs:
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()
        assert tensor.grad[2].count_nonzero() == 0
        assert tensor.grad[0].count_nonzero() > 0


@pytest.mark.parametrize("kind", ["none", "padding", "causal", "both"])
def test_definition_and_fused_path_have_the_same_gradients(kind: str) -> None:
    mask, module, gradients = mask_of(kind, 9), attention(), []
    inputs = [tensor.requires_grad_() for tensor in tensors(9)]
    with trace(module):
        defined = module.attend(*inputs, mask)
    for context in (defined, module.attend(*inputs, mask)):
        gradients.append(torch.autograd.grad(context.sin().sum(), inputs))
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("kind", ["none", "padding", "causal", "both"])
def test_on_a_cpu_dropout_runs_the_definition_also_without_a_trace(kind: str) -> None:
    """The same random numbers drop the same weights; PyTorch's fused attention on a CPU would drop none."""
    module, results = MultiHeadAttention(8, HEADS, D_K, D_V, Dropout(0.5)).double().train(), []
    allowed = torch.ones(BATCH, 1, 9, 9, dtype=torch.bool)
    allowed[1, :, 2], allowed[2] = False, False
    mask = mask_of(kind, 9)
    mask = None if mask is None else replace(mask, allowed=allowed)
    inputs = [tensor.requires_grad_() for tensor in tensors(9)]
    for tracing in (True, False):
        torch.manual_seed(5)
        with trace(module) if tracing else nullcontext():
            context = module.attend(*inputs, mask)
        results.append([context, *torch.autograd.grad(context.sin().sum(), inputs)])
    for traced, untraced in zip(*results, strict=True):
        assert torch.equal(traced, untraced)
        assert untraced.isfinite().all()
    context = results[1][0]
    assert not torch.equal(context, module.eval().attend(*inputs, mask))
    if mask is not None:
        assert context[1, :, 2].count_nonzero() == 0
        assert context[2].count_nonzero() == 0
        assert all(gradient[2].count_nonzero() == 0 for gradient in results[1][1:])


def test_causal_mask_includes_cached_keys() -> None:
    seen = causal_mask(3).dense(2, 6)
    assert seen is not None
    assert seen[0, 0].tolist() == [[True] * 4 + [False] * 2, [True] * 5 + [False]]
    rows = causal_mask(torch.tensor([0, 3])).dense(2, 6)
    assert rows is not None
    assert torch.equal(rows[1:], seen)
    assert rows[0, 0].tolist() == [[True] + [False] * 5, [True] * 2 + [False] * 4]


def test_sentences_of_one_row_see_themselves_only() -> None:
    sentences = torch.tensor([[1, 1, 2, 0]])
    seen = causal_mask(sentences=sentences).dense(4, 4)
    assert seen is not None
    assert seen[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    with pytest.raises(ValueError, match="the keys' sentences are numbered and the queries' are not"):
        Mask(sentences, sentences != 0)


def test_fused_attention_uses_its_causal_flag_for_purely_causal_masks() -> None:
    keys = torch.ones(1, 4, dtype=torch.bool)
    assert causal_mask().only_causal(4, 4)
    others = [Mask(keys, causal=True), causal_mask(2), causal_mask(torch.tensor([0])), Mask(), Mask(keys)]
    assert not any(mask.only_causal(4, 4) for mask in others)
    assert not causal_mask().only_causal(4, 6)
