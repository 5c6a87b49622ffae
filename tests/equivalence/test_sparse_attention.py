"""Sparse attention is the definition under the pattern's mask, and costs what it sees."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from glassformer.config import ConfigError
from glassformer.layers import parts
from glassformer.layers.mask import causal_mask
from glassformer.layers.pattern import Block, Column, Element, Pattern, Summary, Window, fixed, global_tokens, strided

PATTERNS: dict[str, Callable[[bool], Pattern]] = {
    "narrow window": lambda causal: Window(5, causal),
    "window": lambda causal: Window(40, causal),
    "window of all": lambda causal: Window(1000, causal),
    "block": lambda causal: Block(16, causal),
    "block of pieces": lambda causal: Block(70, causal),
    "column": lambda causal: Column(7, causal),
    "summary": lambda causal: Summary(9, 2, causal),
    "strided": lambda causal: strided(11, causal),
    "strided beyond": lambda causal: strided(90, causal),
    "fixed": lambda causal: fixed(16, 3, causal),
    "global": lambda causal: global_tokens((11, 0, 60), causal),
    "window and global": lambda causal: Window(9, causal) | global_tokens((0, 5, 40), causal),
    "global and window": lambda causal: global_tokens((3,), causal) | Window(4, causal),
    "three": lambda causal: Block(8, causal) | Window(3, causal) | Column(5, True),
}
SIZES = [(2, 131, 131, 5, 3), (1, 70, 70, 4, 4), (2, 7, 50, 3, 6), (2, 30, 7, 3, 6), (3, 1, 33, 4, 4), (1, 1, 1, 1, 1)]
MASKS: dict[str, Callable[[int, int, int], Tensor | None]] = {
    "none": lambda batch, query, key: None,
    "padding": lambda batch, query, key: (torch.arange(key) < torch.randint(0, key + 1, (batch, 1)))[:, None, None],
    "full": lambda batch, query, key: torch.rand(batch, 2, query, key) < 0.5,
    "causal": lambda batch, query, key: causal_mask(key - query).dense(query, key),
}


def definition(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = q @ k.transpose(-1, -2) / q.size(-1) ** 0.5
    return scores.masked_fill(~mask, -1e30).softmax(-1).masked_fill(~mask, 0) @ v


def inputs(size: tuple[int, ...], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Heads side by side in memory, as the projections give them."""
    batch, query, key, d_k, d_v = size
    sides = [(query, d_k), (key, d_k), (key, d_v)]
    return [torch.randn(batch, n, 2, d, dtype=torch.float64).to(dtype).transpose(1, 2) for n, d in sides]


def value_and_gradients(function: Callable[..., Tensor], leaves: list[Tensor], ahead: Tensor) -> list[Tensor]:
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    y = function(*leaves)
    return [y.detach(), *torch.autograd.grad(y, leaves, ahead.to(y.dtype))]


def differences(pattern: Pattern, size: tuple[int, ...], mask: Tensor | None, dtype: torch.dtype) -> list[float]:
    """From the definition in float64; relative where numbers are large."""
    leaves, ahead = inputs(size, dtype), torch.randn(size[0], 2, size[1], size[4])
    seen = pattern.mask(size[1], size[2])
    seen = seen if mask is None else seen & mask
    found = value_and_gradients(lambda *x: pattern.attend(*x, mask), leaves, ahead)
    exact = value_and_gradients(lambda *x: definition(*x, seen), [x.double() for x in leaves], ahead)
    assert all(one.dtype == dtype and one.shape == other.shape for one, other in zip(found, exact, strict=True))
    return [
        ((one.double() - other).abs().max() / max(other.abs().max().item(), 1.0)).item()
        for one, other in zip(found, exact, strict=True)
    ]


@pytest.mark.parametrize("causal", [False, True], ids=["both sides", "causal"])
@pytest.mark.parametrize("name", PATTERNS)
def test_it_is_the_definition_under_its_mask(name: str, causal: bool) -> None:
    for number, size in enumerate(SIZES):
        for kind in ("none", "padding", "full", "causal") if number == 0 else ("none", "padding", "full")[number % 3 :]:
            mask = MASKS[kind](*size[:3])
            assert max(differences(PATTERNS[name](causal), size, mask, torch.float64)) < 1e-12, (size, kind)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 3e-6), (torch.bfloat16, 2e-2)], ids=str)
@pytest.mark.parametrize("name", PATTERNS)
def test_in_lower_precision(name: str, dtype: torch.dtype, tolerance: float) -> None:
    assert max(differences(PATTERNS[name](True), SIZES[0], MASKS["padding"](*SIZES[0][:3]), dtype)) < tolerance


@pytest.mark.parametrize("name", PATTERNS)
def test_where_there_is_no_fused_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "has_fused", lambda q: False)
    for kind in ("padding", "full"):
        mask = MASKS[kind](*SIZES[0][:3])
        assert max(differences(PATTERNS[name](True), SIZES[0], mask, torch.float64)) < 1e-12
    assert max(differences(PATTERNS[name](True), SIZES[0], None, torch.bfloat16)) < 2e-2


def test_the_masks_are_those_of_the_papers() -> None:
    i, j = torch.arange(20)[:, None], torch.arange(20)
    ahead = j > i
    assert torch.equal(Window(4).mask(20, 20)[0, 0], (i - j).abs() < 4)
    assert torch.equal(Window(20, causal=True).mask(20, 20), causal_mask().dense(20, 20))
    near = (i - j <= 6) | ((i - j) % 6 == 0)  # A⁽¹⁾ = {max(0, i − l), …, i}, A⁽²⁾ = {j: (i − j) mod l = 0}
    assert torch.equal(strided(6, causal=True).mask(20, 20)[0, 0], near & ~ahead)
    own = (j // 6 == i // 6) | (j % 6 >= 4)
    assert torch.equal(fixed(6, 2, causal=True).mask(20, 20)[0, 0], own & ~ahead)
    few = (i == 0) | (i == 7) | (j == 0) | (j == 7)
    pattern = Window(2) | global_tokens((0, 7))
    assert torch.equal(pattern.mask(20, 20)[0, 0], few | ((i - j).abs() < 2))
    assert torch.equal(pattern.mask(5, 20), pattern.mask(20, 20)[:, :, -5:])  # the last query is at the last key
    assert pattern == Window(2) | global_tokens((0, 7)) and hash(pattern) == hash(Window(2) | global_tokens((0, 7)))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", PATTERNS)
def test_nothing_behind_padding_reaches_anything(name: str, fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "has_fused", lambda q: fused)
    leaves, ahead, pattern = inputs((2, 80, 80, 4, 6)), torch.randn(2, 2, 80, 6), PATTERNS[name](False)
    mask = (torch.arange(80) < torch.tensor([[50], [0]]))[:, None, None]

    def run() -> list[Tensor]:
        return value_and_gradients(lambda *x: pattern.attend(*x, mask), leaves, ahead)

    clean = run()
    for x in leaves[1:]:
        x.masked_fill_(~mask.transpose(2, 3), torch.nan)
    assert all(torch.equal(one, other) for one, other in zip(clean, run(), strict=True))
    assert all(x.isfinite().all() and not x[1].any() for x in clean)  # who sees nothing: zeros


@pytest.mark.parametrize("kind", MASKS)
def test_it_is_the_same_while_pytorch_compiles(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert (
        max(differences(PATTERNS["window and global"](True), SIZES[0], MASKS[kind](*SIZES[0][:3]), torch.float64))
        < 1e-12
    )


def test_the_number_of_cores_changes_no_bit() -> None:
    pattern, before = Window(40, causal=True) | Column(50, causal=True), torch.get_num_threads()
    leaves, ahead, results = inputs((1, 1500, 1500, 32, 32), torch.float32), torch.randn(1, 2, 1500, 32), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(value_and_gradients(pattern.attend, leaves, ahead))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for found in results[1:] for one, other in zip(found, results[0], strict=True))


def test_large_scores_stay_finite() -> None:
    pattern = Window(9, causal=True) | global_tokens((0, 5), causal=True)
    q, k, v = inputs((1, 70, 70, 4, 4), torch.float32)
    found = value_and_gradients(pattern.attend, [1e4 * q, k, v], torch.ones(1, 2, 70, 4))
    exact = definition(1e4 * q.double(), k.double(), v.double(), pattern.mask(70, 70))
    assert all(x.isfinite().all() for x in found)
    torch.testing.assert_close(found[0].double(), exact, atol=1e-2, rtol=0)


def compared(element: Element, n: int) -> int:
    """Products of a query and a key."""
    every = torch.device("cpu")
    sides = [(queries.index(every), keys.index(every)) for queries, keys in element.cover(n, n)]
    times = torch.bincount(torch.cat([queries.flatten() for queries, _ in sides]), minlength=n)
    assert times.max() <= 1, "a query is covered twice"
    return sum(queries.numel() * keys.size(1) for queries, keys in sides)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", [Window, Block])
def test_the_cost_grows_with_the_length(kind: Callable[..., Element], causal: bool) -> None:
    costs = [compared(kind(128, causal), n) for n in (1024, 2048, 4096, 8192)]
    assert costs[0] <= 1024 * (128 + 64) * (1 if causal else 2)
    steps = [after - before for before, after in pairwise(costs)]
    assert steps[1] == 2 * steps[0] and steps[2] == 4 * steps[0]


def test_the_cost_of_a_stride_of_the_root_is_n_root_n() -> None:
    assert [compared(Column(root), root * root) for root in (16, 32, 64)] == [root**3 for root in (16, 32, 64)]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="width=0 of attention's Window; choose 1 or more"):
        Window(0)
    with pytest.raises(ConfigError, match=r"positions=\(-1,\) of global tokens; choose at least one, from 0 on"):
        global_tokens((-1,))
