"""Outputs of selected tokens are those of all tokens, from the kernels, which skip the others, and from PyTorch."""

from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.layers.mask import Mask
from glassformer.models.device import cast_stacks
from glassformer.models.registry import build_model
from glassformer.native import accelerate
from glassformer.native import stack as native_stack
from glassformer.native.library import kernels

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
NORM_ORDERS = pytest.mark.parametrize("norm_order", ["post", "pre"])
STACKS = pytest.mark.parametrize("part", ["encoder", "decoder"])
BATCH, LENGTH, D_MODEL = 4, 21, 64
LENGTHS = torch.tensor([21, 17, 0, 1])
TOKENS = (torch.arange(LENGTH) < LENGTHS[:, None]).flatten().nonzero().flatten().tolist()
SELECTED = {
    "few": [60, 3, 21, 37],
    "one twice, and padding": [3, 25, 25, 39, 62, 50, 63],
    "none": [],
    "all": list(range(BATCH * LENGTH)),
    "all but padding": TOKENS,
    "all but padding, the last two exchanged": [*TOKENS[:-2], TOKENS[-1], TOKENS[-2]],
}
GRADIENTS = {torch.float32: 1e-5, torch.bfloat16: 0.05}


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of tokens of each output that the kernel of a whole stack computed."""
    found, apply = list[int](), native_stack._Stack.apply

    def noted(*given: Any) -> Tensor:
        result: Tensor = apply(*given)
        found.append(result[..., 0].numel())
        return result

    monkeypatch.setattr(native_stack._Stack, "apply", noted)
    return found


def stack_of(part: str, norm_order: str, dtype: torch.dtype, dropout: float = 0.0) -> Any:
    if kernels() is None or (dtype == torch.bfloat16 and not kernels().has_bfloat16):
        pytest.skip("no kernels that train in this type")
    torch.manual_seed(0)
    sizes = {"d_model": D_MODEL, "n_heads": 2, "d_ff": 128, "n_encoder_layers": 2, "n_decoder_layers": 2}
    values = {"vocab_size": 40, "norm_order": norm_order, "dropout": dropout, **sizes}
    made = build_model({"kind": "encoder_decoder", **values}, "test").train()
    for name, parameter in made.named_parameters():
        if name.endswith("bias"):  # zeros would hide one that is left out
            torch.nn.init.normal_(parameter, std=0.3)
    return getattr(accelerate(cast_stacks(made, dtype) if dtype == torch.bfloat16 else made), part)


def computed(
    stack: Any, selected: Tensor, skip: bool, by_query: bool = False, lengths: Tensor = LENGTHS
) -> tuple[Tensor, dict[str, Tensor]]:
    """Output of the ``selected`` tokens and all gradients; without ``skip`` the stack computes all tokens."""
    torch.manual_seed(1)
    x = torch.randn(BATCH, LENGTH, D_MODEL).requires_grad_()
    memory = torch.randn(BATCH, 9, D_MODEL).to(stack.dtype).requires_grad_()
    memory = None if stack.layers[0].cross_attention is None else memory
    visible = torch.arange(LENGTH) < lengths[:, None]
    mask = Mask(visible, visible)
    if by_query:
        mask = Mask(allowed=visible[:, None, None] & torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril())
    stack.zero_grad()
    torch.manual_seed(2)
    if skip:
        y = stack(x, mask, memory, selected=selected)
    else:
        y = stack(x, mask, memory).flatten(0, 1).index_select(0, selected)
    torch.manual_seed(3)
    (y * torch.randn(y.shape)).sum().backward()
    gradients = {"x": x.grad, **{name: parameter.grad for name, parameter in stack.named_parameters()}}
    return y.detach(), gradients if memory is None else gradients | {"memory": memory.grad}


@DTYPES
@STACKS
@NORM_ORDERS
@pytest.mark.parametrize("by_query", [False, True], ids=["padding", "causal"])
@pytest.mark.parametrize("case", SELECTED)
def test_outputs_and_gradients_are_those_of_all_tokens(
    case: str, by_query: bool, norm_order: str, part: str, dtype: torch.dtype, whole: list[int]
) -> None:
    stack, selected = stack_of(part, norm_order, dtype), torch.tensor(SELECTED[case], dtype=torch.long)
    y, gradients = computed(stack, selected, True, by_query)
    expected, expected_gradients = computed(stack, selected, False, by_query)
    assert whole == [len(selected), BATCH * LENGTH][selected.numel() == 0 :]  # blocks compute nothing
    assert torch.equal(y, expected)
    for name, other in expected_gradients.items():
        if not name.endswith("key.bias"):  # of all keys the same, which the softmax does not see: rounding alone
            assert (gradients[name] - other).norm() <= GRADIENTS[dtype] * other.norm(), name


@DTYPES
@STACKS
@NORM_ORDERS
@pytest.mark.parametrize("padded", [False, True])
def test_all_tokens_in_order_have_the_bits_and_the_dropout_of_no_selection(
    padded: bool, norm_order: str, part: str, dtype: torch.dtype
) -> None:
    stack = stack_of(part, norm_order, dtype, dropout=0.25)
    everything, lengths = torch.arange(BATCH * LENGTH), torch.full((BATCH,), LENGTH)
    if padded:
        everything, lengths = torch.tensor(TOKENS), LENGTHS
    (y, gradients), (expected, others) = (computed(stack, everything, skip, lengths=lengths) for skip in (True, False))
    assert torch.equal(y, expected)
    assert all(torch.equal(gradients[name], other) for name, other in others.items())


@STACKS
@NORM_ORDERS
def test_an_input_in_float32_has_the_bits_of_one_that_was_rounded(
    norm_order: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack, low = stack_of(part, norm_order, torch.bfloat16, dropout=0.25), torch.bfloat16
    torch.manual_seed(1)
    memory = None if part == "encoder" else torch.randn(BATCH, 9, D_MODEL, dtype=low)
    given, found, read, apply = torch.randn(BATCH, LENGTH, D_MODEL), [], [], native_stack._Stack.apply
    monkeypatch.setattr(native_stack._Stack, "apply", lambda *each: (read.append(each[5].dtype), apply(*each))[1])
    for x in (given, given.to(low)):
        x.requires_grad_()
        stack.zero_grad()
        torch.manual_seed(2)
        y = stack(x, None, memory)
        y.float().square().sum().backward()
        assert y.dtype == low and x.grad is not None
        found.append([y.detach(), x.grad.to(low), *(parameter.grad for parameter in stack.parameters())])
    assert read == [torch.float32, low]
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("token", [-1, BATCH * LENGTH])
def test_a_token_outside_the_batch_is_an_error(token: int) -> None:
    stack = stack_of("encoder", "post", torch.float32)
    with pytest.raises(IndexError, match="a selected token is outside the 4 × 21 tokens of the batch"):
        stack(torch.randn(BATCH, LENGTH, D_MODEL), selected=torch.tensor([0, token]))
    with torch.no_grad(), pytest.raises(IndexError):
        stack(torch.randn(BATCH, LENGTH, D_MODEL), selected=torch.tensor([0, token]))


def test_indices_that_change_before_the_backward_pass_are_refused() -> None:
    selected = torch.tensor([1, 2])
    y = stack_of("encoder", "post", torch.float32)(
        torch.randn(BATCH, LENGTH, D_MODEL).requires_grad_(), selected=selected
    )
    selected.fill_(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("native", [True, False], ids=["kernels", "PyTorch"])
def test_class_tokens_of_images_are_those_of_all_patches(native: bool, whole: list[int]) -> None:
    torch.manual_seed(0)
    sizes = {"d_model": 64, "n_heads": 2, "d_ff": 128, "n_layers": 2, "dropout": 0.0}
    model = build_model(
        {"kind": "vit", "image_size": [8, 8], "patch_size": 4, "n_channels": 1, "n_classes": 3, **sizes}, "test"
    ).train()
    if native and kernels() is None:
        pytest.skip("no kernels")
    form: Any = accelerate(model) if native else model
    images, found = torch.rand(5, 1, 8, 8), []
    for vectors in (form.class_tokens, lambda images: form.hidden(images)[:, 0]):
        model.zero_grad()
        y = vectors(images)
        y.square().sum().backward()
        found.append([y.detach(), *(p.grad for p in form.parameters() if p.grad is not None)])
    assert whole == ([5, 25] if native else [])
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(*found, strict=True))


def test_a_form_for_inference_selects_too() -> None:
    torch.manual_seed(0)
    sizes = {"d_model": 64, "n_heads": 2, "d_ff": 128, "n_layers": 2, "vocab_size": 40}
    model: Any = build_model({"kind": "bert", **sizes}, "test").eval()
    tokens, selected = torch.randint(40, (3, 9)), torch.tensor([20, 4])
    mask = torch.arange(9) < torch.tensor([9, 5, 7])[:, None]
    for form in (model, accelerate(model)):
        with torch.inference_mode():
            expected = form.hidden(tokens, mask).flatten(0, 1)[selected]
            assert torch.equal(form.hidden(tokens, mask, selected=selected), expected)
