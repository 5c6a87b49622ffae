"""The loss without all logits equals PyTorch's cross-entropy of all logits, in PyTorch and in the kernels."""

import pytest
import torch
import torch.nn.functional as F

from glassformer.native.embedding import NativeOutputProjection
from glassformer.native.library import kernels
from glassformer.train.loss import ROWS_AT_ONCE, Loss, projected_cross_entropy, projection_loss
from second_device import second_device

D_MODEL, VOCAB = 8, 37
ENGINES = ["torch", "native"]


def loss_of(
    engine: str,
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    target: torch.Tensor,
    smoothing: float,
) -> Loss:
    if engine == "torch":
        return projected_cross_entropy(hidden, weight, bias, target, smoothing)
    if (made := kernels()) is None or not (made.has_bfloat16 or hidden.dtype == torch.float32):
        pytest.skip("no kernels for this type")
    projection = NativeOutputProjection(1, 1, bias is not None)
    projection._parameters["weight"], projection._parameters["bias"] = weight, bias
    return projection_loss(projection, hidden, target, smoothing)


def inputs(rows: int, bias: bool) -> tuple[list[torch.Tensor], torch.Tensor]:
    shapes = [(rows, D_MODEL), (VOCAB, D_MODEL), *([(VOCAB,)] if bias else [])]
    tensors = [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes]
    return tensors, torch.randint(VOCAB, (rows,))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 7, ROWS_AT_ONCE, 2 * ROWS_AT_ONCE + 3])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_value_and_gradients_are_those_of_pytorch(smoothing: float, rows: int, bias: bool) -> None:
    tensors, target = inputs(rows, bias)
    hidden, weight, *rest = tensors
    ours = projected_cross_entropy(hidden, weight, rest[0] if rest else None, target, smoothing)
    logits = F.linear(hidden, weight, *rest)
    theirs = F.cross_entropy(logits, target, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(ours.loss, theirs, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(ours.nll, F.cross_entropy(logits, target, reduction="sum"), atol=1e-10, rtol=1e-10)
    gradients = [torch.autograd.grad(3 * loss, tensors) for loss in (ours.loss, theirs)]
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("at_once", [1, 600, 10_000])
def test_on_another_device_as_many_rows_at_a_time_as_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("glassformer.train.loss.LOGITS_AT_ONCE", at_once * VOCAB)
    tensors, target = inputs(2 * ROWS_AT_ONCE + 200, bias=True)
    found = []
    with second_device() as device:
        for place in (torch.device("cpu"), device):
            hidden, weight, bias = there = [tensor.detach().to(place).requires_grad_() for tensor in tensors]
            loss = projected_cross_entropy(hidden, weight, bias, target.to(place), 0.1)
            gradients = torch.autograd.grad(loss.loss, there)
            found.append([each.detach().cpu() for each in (loss.loss, loss.nll, *gradients)])
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-10)


def test_the_plain_likelihood_is_a_number_to_report() -> None:
    """Its gradient is not computed, so it must not look as if it had one."""
    (hidden, weight), target = inputs(3, bias=False)
    assert not projected_cross_entropy(hidden, weight, None, target, 0.1).nll.requires_grad


def test_bfloat16_loss_of_exact_logits_is_that_of_pytorch() -> None:
    """All numbers have 8 bits, so that logits are exact and the error is that of the exponential function."""
    exact = [(8 * torch.randn(rows, 64, dtype=torch.float64)).round() / 8 for rows in (100, 133)]
    target = torch.randint(133, (100,))
    ours = loss_of("native", exact[0].bfloat16(), exact[1].float(), None, target, 0.0)
    theirs = F.cross_entropy(F.linear(*exact), target)
    assert ours.nll.item() / 100 == pytest.approx(theirs.item(), abs=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_bfloat16_cross_entropy_is_within_one_percent(smoothing: float) -> None:
    """bfloat16 has 8 bits: single logits are off by up to 0.4 %, sums over many tokens by less."""
    tensors, target = inputs(600, bias=True)
    exact = projected_cross_entropy(*tensors, target, smoothing)
    expected = torch.autograd.grad(exact.loss, tensors)
    single = [tensor.detach().float().requires_grad_() for tensor in tensors]
    loss = projected_cross_entropy(single[0].bfloat16(), *single[1:], target, smoothing)
    gradients = torch.autograd.grad(loss.loss, single)
    assert loss.loss.dtype == torch.float32
    assert loss.loss.item() == pytest.approx(exact.loss.item(), rel=1e-2)
    assert loss.nll.item() == pytest.approx(exact.nll.item(), rel=1e-2)
    for one, other in zip(gradients, expected, strict=True):
        assert (one.double() - other).norm() < 1e-2 * other.norm()


def test_a_target_too_improbable_for_the_type_has_its_loss() -> None:
    """p underflows to zero; its logarithm is still known."""
    hidden, weight = torch.full((2, 1), 1.0), torch.tensor([[0.0], [200.0]])
    loss = projected_cross_entropy(hidden, weight, None, torch.tensor([0, 1]), 0.0)
    assert loss.nll.item() == pytest.approx(200.0)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 7, 512, 1100])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("vocabulary", [133, 128])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)], ids=str)
def test_loss_of_each_engine_is_that_in_float64(
    dtype: torch.dtype, tolerance: float, vocabulary: int, smoothing: float, rows: int, bias: bool, engine: str
) -> None:
    """Rows that are no whole number of blocks, a vocabulary that is no whole number of panels, and one that is."""
    shapes = (rows, 64), (vocabulary, 64), (vocabulary,)
    exact = [torch.randn(shape, dtype=torch.float64) for shape in shapes][: 2 + bias]
    exact[1] /= 8  # logits of about 1, as a fresh model's: PyTorch's path rounds each to 8 bits
    target = torch.randint(vocabulary, (rows,))
    found = []
    low = [exact[0].to(dtype), *(each.float() for each in exact[1:])]
    for name, tensors in ((engine, low), ("torch", exact)):
        leaves = [each.detach().requires_grad_() for each in tensors]
        loss = loss_of(name, leaves[0], leaves[1], leaves[2] if bias else None, target, smoothing)
        gradients = torch.autograd.grad(loss.loss, leaves)
        found.append([loss.loss.detach(), loss.nll, *gradients])
    for one, other in zip(*found, strict=True):
        assert (one.double() - other).norm() <= tolerance * other.norm()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("wrong", [-1, 133])
def test_a_target_beyond_the_vocabulary_is_refused(wrong: int, engine: str) -> None:
    with pytest.raises(IndexError):
        loss_of(engine, torch.randn(2, 64), torch.randn(133, 64), None, torch.tensor([0, wrong]), 0.1)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)], ids=str)
def test_threads_change_no_bit_of_the_kernels(dtype: torch.dtype, tolerance: float, engine: str) -> None:
    """Two or three pieces, the last an odd one, so that threads that do not wait for each other would be seen."""
    shapes, target = ((2101, 64), (20_000, 64), (20_000,)), torch.randint(20_000, (2101,))
    drawn = [torch.randn(shape) / 4 for shape in shapes]
    drawn[0] = drawn[0].to(dtype)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 2):
            torch.set_num_threads(threads)
            found.append(loss_and_gradients(engine, drawn, target))
    finally:
        torch.set_num_threads(before)
    exact = loss_and_gradients("torch", [each.double() for each in drawn], target)
    for result in found:
        for one, other in zip(result, exact, strict=True):
            assert (one.double() - other).norm() <= tolerance * other.norm()
        if engine == "native":
            assert all(torch.equal(one, two) for one, two in zip(found[0], result, strict=True))


def loss_and_gradients(engine: str, tensors: list[torch.Tensor], target: torch.Tensor) -> list[torch.Tensor]:
    leaves = [each.detach().requires_grad_() for each in tensors]
    loss = loss_of(engine, *leaves, target, 0.1)
    return [loss.loss.detach(), *torch.autograd.grad(loss.loss, leaves)]
