"""Blockwise attention equals equation 1 under the pattern's dense mask."""

import subprocess
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from glassformer.layers.mask import causal_mask
from glassformer.layers.sparse import (
    BlockComponent,
    ColumnComponent,
    Pattern,
    Summary,
    Window,
    blockwise,
    fixed,
    global_tokens,
    strided,
)
from own_process import running

PATTERNS: dict[str, Callable[[bool], Pattern]] = {
    "narrow window": lambda causal: Window(5, causal),
    "window": lambda causal: Window(40, causal),
    "window of all": lambda causal: Window(1000, causal),
    "block": lambda causal: BlockComponent(16, causal),
    "block of pieces": lambda causal: BlockComponent(70, causal),
    "column": lambda causal: ColumnComponent(7, causal),
    "summary": lambda causal: Summary(9, 2, causal),
    "strided": lambda causal: strided(11, causal),
    "strided beyond": lambda causal: strided(90, causal),
    "fixed": lambda causal: fixed(16, 3, causal),
    "global": lambda causal: global_tokens((11, 0, 60), causal),
    "window and global": lambda causal: Window(9, causal) | global_tokens((0, 5, 40), causal),
    "global and window": lambda causal: global_tokens((3,), causal) | Window(4, causal),
    "three": lambda causal: BlockComponent(8, causal) | Window(3, causal) | ColumnComponent(5, True),
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
    """q, k and v with heads side by side in memory, as the projections produce them."""
    batch, query, key, d_k, d_v = size
    sides = [(query, d_k), (key, d_k), (key, d_v)]
    return [torch.randn(batch, n, 2, d, dtype=torch.float64).to(dtype).transpose(1, 2) for n, d in sides]


def value_and_gradients(function: Callable[..., Tensor], leaves: list[Tensor], ahead: Tensor) -> list[Tensor]:
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    y = function(*leaves)
    return [y.detach(), *torch.autograd.grad(y, leaves, ahead.to(y.dtype))]


def differences(pattern: Pattern, size: tuple[int, ...], mask: Tensor | None, dtype: torch.dtype) -> list[float]:
    """Largest differences from the definition in float64, relative to values above 1."""
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
def test_attend_equals_the_definition_in_float64(name: str, causal: bool) -> None:
    for number, size in enumerate(SIZES):
        for kind in ("none", "padding", "full", "causal") if number == 0 else ("none", "padding", "full")[number % 3 :]:
            mask = MASKS[kind](*size[:3])
            assert max(differences(PATTERNS[name](causal), size, mask, torch.float64)) < 1e-12, (size, kind)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 3e-6), (torch.bfloat16, 2e-2)], ids=str)
@pytest.mark.parametrize("name", PATTERNS)
def test_attend_equals_the_definition_in_lower_precision(name: str, dtype: torch.dtype, tolerance: float) -> None:
    assert max(differences(PATTERNS[name](True), SIZES[0], MASKS["padding"](*SIZES[0][:3]), dtype)) < tolerance


@pytest.mark.parametrize("name", PATTERNS)
def test_plain_products_equal_the_definition(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blockwise, "has_flash_kernel", lambda q: False)
    for kind in ("padding", "full"):
        mask = MASKS[kind](*SIZES[0][:3])
        assert max(differences(PATTERNS[name](True), SIZES[0], mask, torch.float64)) < 1e-12
    assert max(differences(PATTERNS[name](True), SIZES[0], None, torch.bfloat16)) < 2e-2


@pytest.mark.parametrize("flash", [True, False])
@pytest.mark.parametrize("name", PATTERNS)
def test_masked_keys_change_no_output_and_no_gradient(name: str, flash: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blockwise, "has_flash_kernel", lambda q: flash)
    leaves, ahead, pattern = inputs((2, 80, 80, 4, 6)), torch.randn(2, 2, 80, 6), PATTERNS[name](False)
    mask = (torch.arange(80) < torch.tensor([[50], [0]]))[:, None, None]

    def run() -> list[Tensor]:
        return value_and_gradients(lambda *x: pattern.attend(*x, mask), leaves, ahead)

    clean = run()
    for x in leaves[1:]:
        x.masked_fill_(~mask.transpose(2, 3), torch.nan)
    assert all(torch.equal(one, other) for one, other in zip(clean, run(), strict=True))
    assert all(x.isfinite().all() for x in clean)
    assert not any(x[1].any() for x in clean)  # no key is allowed: zeros


COMPILED = """
import torch
from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.mask import Mask
from glassformer.layers.sparse import Window, global_tokens

pattern = Window(9, causal=True) | global_tokens((0, 5, 40), causal=True)
keys = torch.arange(70) < torch.tensor([[70], [31]])
for training in (True, False):
    module = MultiHeadAttention(16, (4, 2), 4, 4, torch.nn.Identity(), pattern=pattern).double().train(training)
    for mask in (None, Mask(keys)):
        x = torch.randn(2, 70, 16, dtype=torch.float64, requires_grad=True)
        results = []
        for function in (module, torch.compile(module, backend="aot_eager", fullgraph=True)):
            y = function(x, mask=mask)[keys]
            results.append((y, *torch.autograd.grad(y.sin().sum(), [x, *module.parameters()])))
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)
        print("equal")
"""


def test_compiled_attention_equals_blockwise_attention_without_a_graph_break() -> None:
    """In a separate process, because the compiler cannot trace the shape checks of tests."""
    process = running("-W", "ignore", "-c", COMPILED, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, errors = process.communicate()
    assert output == "equal\n" * 4, errors


def test_attend_is_bit_identical_for_any_number_of_threads() -> None:
    pattern, before = Window(40, causal=True) | ColumnComponent(50, causal=True), torch.get_num_threads()
    leaves, ahead, results = inputs((1, 1500, 1500, 32, 32), torch.float32), torch.randn(1, 2, 1500, 32), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(value_and_gradients(pattern.attend, leaves, ahead))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for found in results[1:] for one, other in zip(found, results[0], strict=True))


def test_attend_stays_finite_for_large_scores() -> None:
    pattern = Window(9, causal=True) | global_tokens((0, 5), causal=True)
    q, k, v = inputs((1, 70, 70, 4, 4), torch.float32)
    found = value_and_gradients(pattern.attend, [1e4 * q, k, v], torch.ones(1, 2, 70, 4))
    exact = definition(1e4 * q.double(), k.double(), v.double(), pattern.mask(70, 70))
    assert all(x.isfinite().all() for x in found)
    torch.testing.assert_close(found[0].double(), exact, atol=1e-2, rtol=0)
