"""Attention in the kernels is the definition, forwards and backwards, with and without dropout."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from glassformer.native.library import kernels
from glassformer.native.ops import attention

SIZES = [
    (2, 3, 7, 9, 5, 3),
    (3, 2, 64, 64, 64, 64),
    (1, 2, 33, 70, 16, 40),
    (2, 1, 1, 1, 1, 1),
    (1, 4, 130, 130, 32, 32),
    (1, 1, 5, 6, 65, 67),
    (2, 2, 7, 40, 32, 48),
    (9, 3, 7, 40, 8, 16),  # four sequences a thread, so that a thread computes all heads of one
    (9, 2, 40, 7, 16, 8),
]
MASKS: dict[str, Callable[[int, int, int, int], Tensor | None]] = {
    "none": lambda batch, heads, query, key: None,
    "random": lambda batch, heads, query, key: torch.rand(batch, 1, query, key) < 0.5,
    "of each head": lambda batch, heads, query, key: torch.rand(batch, heads, query, key) < 0.5,
    "turned": lambda batch, heads, query, key: (torch.rand(batch, 1, key, query) < 0.5).mT,
    "whole rows": lambda batch, heads, query, key: torch.rand(batch, 1, query, 1) < 0.5,
    "keys": lambda batch, heads, query, key: torch.rand(batch, 1, 1, key) < 0.5,
    "keys of each head": lambda batch, heads, query, key: torch.rand(batch, heads, 1, key) < 0.5,
    "keys, turned": lambda batch, heads, query, key: (torch.rand(key, batch) < 0.5).mT[:, None, None],
    "mostly unseen": lambda batch, heads, query, key: torch.rand(batch, 1, query, key) < 0.05,
    "causal": lambda batch, heads, query, key: torch.ones(query, key, dtype=torch.bool).tril()[None, None],
    "sentences": lambda batch, heads, query, key: (
        (torch.arange(query) // 9)[None, None, :, None] == torch.arange(key) // 9
    ),
}


@pytest.fixture(autouse=True)
def _compiled() -> None:
    if kernels() is None:
        pytest.skip("there are no kernels here")


def definition(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, kept: Tensor | float = 1.0) -> Tensor:
    scores = q @ k.transpose(-1, -2) / q.size(-1) ** 0.5
    if mask is None:
        return (scores.softmax(-1) * kept) @ v
    return (scores.masked_fill(~mask, -1e30).softmax(-1).masked_fill(~mask, 0) * kept) @ v


def inputs(size: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
    """Heads side by side in memory, as the projections give them."""
    batch, heads, query, key, d_k, d_v = size
    sides = [(query, d_k), (key, d_k), (key, d_v)]
    return [torch.randn(batch, n, heads, d).to(dtype).transpose(1, 2) for n, d in sides]


def value_and_gradients(function: Callable[..., Tensor], leaves: list[Tensor], weights: Tensor) -> list[Tensor]:
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    y = function(*leaves)
    return [y.detach(), *torch.autograd.grad((y * weights.to(y.dtype)).sum(), leaves)]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 4e-6), (torch.bfloat16, 2e-2)], ids=str)
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_native_attention_equals_the_definition(
    size: tuple[int, ...], kind: str, dtype: torch.dtype, tolerance: float
) -> None:
    leaves, weights = inputs(size, dtype), torch.randn(size[0], size[1], size[2], size[5])
    mask = MASKS[kind](*size[:4])
    found = value_and_gradients(lambda *x: attention(*x, mask), leaves, weights)
    exact = value_and_gradients(lambda *x: definition(*x, mask), [x.double() for x in leaves], weights)
    for one, other in zip(found, exact, strict=True):
        assert one.dtype == dtype
        assert one.shape == other.shape
        assert (one.double() - other).abs().max() <= tolerance * (other.abs().max() + 1e-3)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 4e-6), (torch.bfloat16, 2e-2)], ids=str)
@pytest.mark.parametrize("kind", ["none", "causal", "of each head"])
@pytest.mark.parametrize(("batch", "n", "d_k", "d_v"), [(3, 20, 24, 8), (3, 5, 32, 16), (9, 20, 24, 8)])
def test_heads_that_share_keys_and_values_equal_repeated_ones(
    batch: int, n: int, d_k: int, d_v: int, kind: str, dtype: torch.dtype, tolerance: float
) -> None:
    (q, _, _), (_, k, v) = inputs((batch, 6, n, n, d_k, d_v), dtype), inputs((batch, 2, n, n, d_k, d_v), dtype)
    weights, mask = torch.randn(batch, 6, n, d_v), MASKS[kind](batch, 6, n, n)
    found = value_and_gradients(lambda *x: attention(*x, mask), [q, k, v], weights)
    repeated = lambda q, k, v: definition(q, *(x.repeat_interleave(3, dim=1) for x in (k, v)), mask)  # noqa: E731
    exact = value_and_gradients(repeated, [x.double() for x in (q, k, v)], weights)
    for one, other in zip(found, exact, strict=True):
        assert one.dtype == dtype
        assert one.shape == other.shape
        assert (one.double() - other).abs().max() <= tolerance * other.abs().max()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)], ids=str)
def test_with_dropout_the_gradient_is_that_of_the_weights_that_stayed(dtype: torch.dtype, tolerance: float) -> None:
    size, threshold = (2, 2, 40, 40, 8, 40), 100
    q, k, v = inputs(size, dtype)
    mask = MASKS["causal"](2, 2, 40, 40)
    torch.manual_seed(3)
    identity = torch.eye(40, dtype=dtype).expand(2, 2, 40, 40)
    weights = attention(q, k, identity, mask, threshold)  # with the identity for values the context is the weights
    assert weights is not None
    assert mask is not None
    exact = definition(q.double(), k.double(), identity.double(), mask)
    kept = (weights != 0).double() * 256 / (256 - threshold)
    torch.testing.assert_close(weights.double(), exact * kept, atol=tolerance / 10, rtol=tolerance)
    seen = mask.expand(2, 2, 40, 40)
    share = (weights[seen] == 0).double().mean().item()
    assert share == pytest.approx(threshold / 256, abs=4.5 * 0.5 / seen.sum().item() ** 0.5)
    leaves, ahead = [q, k, v[..., :8]], torch.randn(2, 2, 40, 8)

    def run(*x: Tensor) -> Tensor:
        torch.manual_seed(3)
        context = attention(*x, mask, threshold)
        assert context is not None
        return context

    found = value_and_gradients(run, leaves, ahead)
    expected = value_and_gradients(lambda *x: definition(*x, mask, kept), [x.double() for x in leaves], ahead)
    for one, other in zip(found, expected, strict=True):
        assert (one.double() - other).abs().max() <= tolerance * other.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_number_of_cores_changes_no_bit(dtype: torch.dtype) -> None:
    leaves, ahead, before = inputs(SIZES[4], dtype), torch.randn(1, 4, 130, 32), torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(value_and_gradients(lambda *x: attention(*x, None), leaves, ahead))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for found in results[1:] for one, other in zip(found, results[0], strict=True))


@pytest.mark.parametrize("kind", ["random", "keys", "keys of each head"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_other_sequences_of_a_batch_change_no_bit(dtype: torch.dtype, kind: str) -> None:
    leaves, ahead = inputs((3, 2, 40, 50, 24, 40), dtype), torch.randn(3, 2, 40, 40)
    mask = MASKS[kind](3, 2, 40, 50)
    assert mask is not None
    together = value_and_gradients(lambda *x: attention(*x, mask), leaves, ahead)
    for b in range(3):
        alone = value_and_gradients(
            lambda *x, b=b: attention(*x, mask[b : b + 1]), [x[b : b + 1] for x in leaves], ahead[b : b + 1]
        )
        assert all(torch.equal(one, other[b : b + 1]) for one, other in zip(alone, together, strict=True))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 4e-6), (torch.bfloat16, 2e-2)], ids=str)
def test_each_call_has_its_own_mask(dtype: torch.dtype, tolerance: float) -> None:
    q, k, v = inputs((1, 2, 9, 9, 8, 8), dtype)
    for mask in (torch.ones(1, 1, 9, 9, dtype=torch.bool).tril(), torch.rand(1, 1, 9, 9) < 0.5, None):
        exact = definition(q.double(), k.double(), v.double(), mask)
        assert (attention(q, k, v, mask).double() - exact).abs().max() <= tolerance * exact.abs().max()


@pytest.mark.parametrize("more", [2, 3], ids=["even distances", "odd distances"])
@pytest.mark.parametrize(("queries", "size"), [(21, 14), (13, 16), (40, 32)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_where_rows_lie_in_memory_changes_no_bit(dtype: torch.dtype, queries: int, size: int, more: int) -> None:
    whole, ahead = inputs((2, 3, queries, 37, size + more, size + more), dtype), torch.randn(2, 3, queries, size)
    mask = MASKS["sentences"](2, 3, queries, 37)
    views = [x[..., 1 : 1 + size] for x in whole]
    found = value_and_gradients(lambda *x: attention(*x, mask), views, ahead)
    copied = value_and_gradients(lambda *x: attention(*x, mask), [x.contiguous() for x in views], ahead)
    assert all(torch.equal(one, other) for one, other in zip(found, copied, strict=True))


def test_nan_in_a_key_leaves_earlier_queries_finite() -> None:
    q, k, v = inputs((1, 1, 16, 16, 4, 4), torch.float32)
    k[:, :, 13], v[:, :, 13] = torch.nan, torch.nan
    context = attention(q, k, v, torch.ones(16, 16, dtype=torch.bool).tril()[None, None])
    assert context is not None
    # Tiles have four or six queries, so that one begins at query 12: 0 · NaN may reach all of it.
    assert context[:, :, :12].isfinite().all() and context[:, :, 13:].isnan().all()


@pytest.mark.parametrize("size", [(9, 0, 3, 3), (0, 2, 3, 3), (2, 2, 0, 3), (2, 2, 3, 0)])
def test_attention_of_empty_tensors_is_empty(size: tuple[int, ...]) -> None:
    batch, heads, queries, keys = size
    q, k = torch.randn(batch, heads, queries, 32), torch.randn(batch, heads, keys, 32)
    context = attention(q, k, k, None)
    assert context.shape == q.shape
    assert not context.any()


def test_scores_that_are_all_minus_infinity_have_no_softmax() -> None:
    q, k = torch.full((1, 1, 1, 32), torch.inf), torch.full((1, 1, 3, 32), -1.0)
    assert attention(q, k, k, None).isnan().all()
    hidden = torch.zeros(1, 1, 1, 3, dtype=torch.bool)
    assert not attention(q, k, k, hidden).any()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(39, 0), (0, 5)])
def test_attention_without_keys_or_queries_gives_zeros(queries: int, keys: int, masked: bool) -> None:
    sizes = ((3, queries), (1, keys), (1, keys))
    q, k, v = (torch.randn(2, heads, length, 32, requires_grad=True) for heads, length in sizes)
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True)  # fills new memory with NaN
    try:
        context = attention(q, k, v, torch.ones(1, 1, queries, keys, dtype=torch.bool) if masked else None)
        gradients = torch.autograd.grad(context.sum(), (q, k, v))
    finally:
        torch.use_deterministic_algorithms(False)
    assert all((x == 0).all() for x in (context, *gradients))


@pytest.mark.parametrize("queries", [1, 5, 16, 21])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_score_of_minus_infinity_leaves_gradients_finite(dtype: torch.dtype, queries: int) -> None:
    q, k, v = inputs((1, 1, queries, 30, 2, 3), dtype)
    q[..., 0], k[:, :, 4] = -q[..., 0].abs() - 1, torch.tensor([torch.inf, 0])
    for mask in (None, MASKS["causal"](1, 1, queries, 30)):
        found = value_and_gradients(lambda *x, m=mask: attention(*x, m), [q, k, v], torch.ones(1, 1, queries, 3))
        assert found[0].isfinite().all()
        assert all(x.isfinite().all() for x in found[2:])
