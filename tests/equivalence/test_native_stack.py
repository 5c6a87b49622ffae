"""A stack that the kernels train as a whole equals its blocks: outputs, gradients, dropout, any number of threads."""

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from glassformer.layers.block import Stack
from glassformer.layers.feed_forward import ACTIVATIONS, Activation, FeedForward
from glassformer.layers.mask import Mask
from glassformer.layers.norm import LayerNorm, RMSNorm
from glassformer.models.device import cast_stacks
from glassformer.models.registry import build_model
from glassformer.native import abi, accelerate, ops, route
from glassformer.native import stack as native_stack
from glassformer.native.library import kernels
from glassformer.taps import record

HIDDEN = {torch.float32: 5e-6, torch.bfloat16: 0.07}
GRADIENTS = {torch.float32: 5e-6, torch.bfloat16: 0.15}


def model(**values: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"d_model": 64, "n_heads": 2, "d_ff": 128, "n_encoder_layers": 2, "n_decoder_layers": 2, "dropout": 0.0}
    made = build_model({"kind": "encoder_decoder", "vocab_size": 40, **sizes, **values}, "test").train()
    for name, parameter in made.named_parameters():
        if name.endswith("bias"):  # zeros would hide one that is left out
            torch.nn.init.normal_(parameter, std=0.3)
    return made


@contextmanager
def block_by_block() -> Iterator[None]:
    """All by PyTorch, as where no gradient is computed."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (ops, native_stack):
            patch.setattr(module, "computes_gradient", lambda *_: False)
        yield


@contextmanager
def as_a_whole() -> Iterator[list[bool]]:
    """For each call of a stack, True if the kernels computed it as a whole, and False if it ran block by block."""
    found, by_blocks, whole = list[bool](), Stack.forward, native_stack._Stack.apply

    def noted(*given: Any) -> Tensor:
        found.append(True)
        return whole(*given)

    def noted_blocks(*given: Any) -> Tensor:
        found.append(False)
        return by_blocks(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_stack._Stack, "apply", noted)
        patch.setattr(Stack, "forward", noted_blocks)
        yield found


def pairs(length: int, packed: bool) -> tuple[Tensor, ...]:
    """Source, target and their masks: two sentences in a row and padding, or one and padding."""
    source, target = torch.randint(1, 40, (3, length)), torch.randint(1, 40, (3, length - 6))
    masks = [torch.ones_like(each) for each in (source, target)]
    for mask in masks:
        mask[0, -3:] = 0
        if packed:
            mask[1:, mask.size(1) // 2 :] = 2
    return source, target, *(mask if packed else mask.bool() for mask in masks)


def computed(made: Any, given: tuple[Tensor, ...]) -> tuple[Tensor, dict[str, Tensor]]:
    """What comes before the output projection where there are tokens, and every gradient of a random sum of it."""
    made.zero_grad()
    torch.manual_seed(5)
    hidden = accelerate(made).hidden(*given)[given[3] != 0].float()
    weights = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(1))
    (hidden * weights).sum().backward()
    return hidden.detach(), {name: p.grad.float() for name, p in made.named_parameters() if p.grad is not None}


def exact(made: Any) -> Any:
    """``made`` with the same weights, computed in float64."""
    return copy.deepcopy(made).double()


def usable(dtype: torch.dtype) -> bool:
    made = kernels()
    return made is not None and (dtype == torch.float32 or made.has_bfloat16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
@pytest.mark.parametrize("norm_order", ["post", "pre"])
@pytest.mark.parametrize(("length", "packed"), [(64, True), (37, True), (21, False)])
def test_outputs_and_gradients_are_those_of_the_blocks(
    dtype: torch.dtype, positions: str, norm_order: str, length: int, packed: bool
) -> None:
    if not usable(dtype):
        pytest.skip("no kernels that train in this type")
    made = model(positions=positions, norm_order=norm_order)
    made = cast_stacks(made, dtype) if dtype == torch.bfloat16 else made
    given = pairs(length, packed)
    with as_a_whole() as whole:
        hidden, gradients = computed(made, given)
    assert whole == [True, True]
    with block_by_block():
        expected, expected_gradients = computed(exact(made), given)
    assert (hidden - expected).abs().max() < HIDDEN[dtype] * expected.abs().max()
    assert gradients.keys() == expected_gradients.keys()
    for name, gradient in expected_gradients.items():
        if not name.endswith("key.bias"):  # of all keys the same, which the softmax does not see: rounding alone
            assert (gradients[name] - gradient).norm() < GRADIENTS[dtype] * gradient.norm(), name


def activated(name: Activation, **values: Any) -> Any:
    """``model`` with an activation that its configuration need not offer."""
    made = model(**values)
    for module in made.modules():
        if isinstance(module, FeedForward):
            module.activation = ACTIVATIONS[name]
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("norm_order", ["post", "pre"])
@pytest.mark.parametrize("name", abi.ACTIVATIONS)
def test_stack_equals_blocks_for_every_activation(name: Activation, norm_order: str, dtype: torch.dtype) -> None:
    if not usable(dtype):
        pytest.skip("no kernels that train in this type")
    made = activated(name, norm_order=norm_order)
    made = cast_stacks(made, dtype) if dtype == torch.bfloat16 else made
    assert_equal_to_blocks(made, dtype, 4 if dtype == torch.float32 else 1)  # GELU's slope is known to 6e-7


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", abi.ACTIVATIONS)
def test_activations_of_large_numbers_are_finite(name: Activation, dtype: torch.dtype) -> None:
    if not usable(dtype):
        pytest.skip("no kernels that train in this type")
    made = activated(name)
    for module in made.modules():
        if isinstance(module, FeedForward):
            with torch.no_grad():
                module.inner.bias.copy_(torch.linspace(-1e4, 1e4, len(module.inner.bias)).round())
    made = cast_stacks(made, dtype) if dtype == torch.bfloat16 else made
    assert_equal_to_blocks(made, dtype, 4 if dtype == torch.float32 else 1)


@pytest.mark.parametrize("name", abi.ACTIVATIONS)
def test_slopes_of_activations_are_those_of_the_blocks(name: Activation) -> None:
    if not usable(torch.float32):
        pytest.skip("no kernels")
    made = activated(name, norm_order="pre")
    for module in made.modules():
        if isinstance(module, FeedForward):
            with torch.no_grad():
                module.inner.weight.zero_()
                module.inner.bias.copy_(torch.linspace(-8, 8, len(module.inner.bias)))
    given = pairs(37, True)
    _, gradients = computed(made, given)
    with block_by_block():
        _, expected = computed(exact(made), given)
    for slopes in (one for one in expected if one.endswith("inner.bias")):
        limit = 5e-6 * expected[slopes].abs().max()
        assert (gradients[slopes] - expected[slopes]).abs().max() < limit, slopes


WIDTHS = {"narrow keys": {"n_heads": 4, "d_k": 16, "d_v": 48}, "narrow values": {"n_heads": 4, "d_k": 48, "d_v": 16}}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
@pytest.mark.parametrize("widths", WIDTHS)
def test_stack_whose_keys_and_values_differ_in_width_equals_its_blocks(
    widths: str, positions: str, dtype: torch.dtype
) -> None:
    if not usable(dtype):
        pytest.skip("no kernels that train in this type")
    made = model(**WIDTHS[widths], positions=positions)
    assert_equal_to_blocks(cast_stacks(made, dtype) if dtype == torch.bfloat16 else made, dtype)


BARE: dict[str, tuple[type[nn.Module], ...]] = {
    "attention": (),
    "projections": (nn.Linear,),
    "all": (nn.Linear, nn.LayerNorm),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("norm_order", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("bare", BARE)
def test_stack_without_biases_equals_its_blocks(
    bare: str, activation: str, norm_order: str, dtype: torch.dtype
) -> None:
    """Without those of attention, as in the paper; of any projection; of norms too."""
    if not usable(dtype):
        pytest.skip("no kernels that train in this type")
    made = model(attention_bias=bare != "attention", activation=activation, norm_order=norm_order)
    for stack in (made.encoder, made.decoder):
        for module in stack.layers.modules():
            if isinstance(module, BARE[bare]):
                module.register_parameter("bias", None)
    made = cast_stacks(made, dtype) if dtype == torch.bfloat16 else made
    assert_equal_to_blocks(made, dtype, 4 if dtype == torch.float32 else 1)  # GELU's slope is known to 6e-7


def test_blocks_may_lack_different_biases() -> None:
    if not usable(torch.float32):
        pytest.skip("no kernels")
    made = model()
    made.encoder.layers[0].feed_forward.inner.register_parameter("bias", None)
    made.decoder.layers[1].cross_attention.output.register_parameter("bias", None)
    assert_equal_to_blocks(made, torch.float32)


def test_norms_without_weights_go_block_by_block() -> None:
    made = model()
    for name in ("weight", "bias"):
        made.encoder.layers[0].self_attention_norm.norm.register_parameter(name, None)
    with as_a_whole() as whole:
        accelerate(made).hidden(*pairs(20, True))
    assert whole == [False, usable(torch.float32)]


def assert_equal_to_blocks(made: Any, dtype: torch.dtype, looser: float = 1) -> None:
    given = pairs(37, True)
    with as_a_whole() as whole:
        hidden, gradients = computed(made, given)
    assert whole == [True, True]
    with block_by_block():
        expected, expected_gradients = computed(exact(made), given)
    assert hidden.isfinite().all()
    assert (hidden - expected).abs().max() < looser * HIDDEN[dtype] * expected.abs().max()
    assert gradients.keys() == expected_gradients.keys()
    for name, gradient in expected_gradients.items():
        assert gradients[name].isfinite().all(), name
        if not name.endswith("key.bias"):  # of all keys the same, which the softmax does not see: rounding alone
            difference = (gradients[name] - gradient).norm()
            assert difference < looser * GRADIENTS[dtype] * gradient.norm() + 2e-6, name


TOKENS = torch.randint(1, 40, (3, 21), generator=torch.Generator().manual_seed(0))
SIZES = {"d_model": 64, "n_heads": 2, "d_ff": 128, "n_layers": 2, "dropout": 0.0}
DESCENDANTS: dict[str, tuple[dict[str, Any], tuple[Tensor, ...]]] = {
    "gpt": ({"vocab_size": 40, "max_length": 32}, (TOKENS, (TOKENS > 20).cumsum(1) + 1)),
    "bert": ({"vocab_size": 40, "max_length": 32}, (TOKENS, torch.arange(21) < torch.tensor([[21], [13], [1]]))),
    "vit": (
        {"n_classes": 5, "image_size": [8, 8], "patch_size": 2},
        (torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0)),),
    ),
    "series": (
        {"n_variables": 3, "context": 24, "horizon": 6, "patch_length": 6, "patch_stride": 3},
        (torch.rand(6, 24, generator=torch.Generator().manual_seed(0)),),
    ),
}
LLAMA = {"norm": "rms", "positions": "rotary", "activation": "silu", "gated": True}
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    **{kind: (kind, {}) for kind in DESCENDANTS},
    "bert, heads of 8": ("bert", {"n_heads": 8}),
    "vit, heads of 48": ("vit", {"d_model": 192, "n_heads": 4}),
    "vit, heads of 24": ("vit", {"d_model": 192, "n_heads": 8}),
    "series, heads of 4": ("series", {"n_heads": 16}),
    "gpt, wider heads": ("gpt", {"n_heads": 4, "attention": {"d_head": 48}}),
    "gpt, RMSNorm": ("gpt", {"norm": "rms"}),
    "gpt, shared keys": ("gpt", {"n_heads": 8, "attention": {"n_kv_heads": 2, "d_head": 32}}),
    "gpt, one head of keys": ("gpt", {"n_heads": 3, "attention": {"n_kv_heads": 1, "d_head": 64}}),
    **{f"gpt, gated {name}": ("gpt", {"gated": True, "activation": name}) for name in abi.ACTIVATIONS},
    "llama": ("gpt", {**LLAMA, "bias": False, "n_heads": 4, "attention": {"n_kv_heads": 2, "d_head": 32}}),
    "llama, biases": ("gpt", {**LLAMA, "n_heads": 8, "attention": {"n_kv_heads": 4, "d_head": 16}}),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("form", FORMS)
def test_descendant_stacks_equal_their_blocks(form: str, dtype: torch.dtype) -> None:
    """Their activations are GELU, of GPT its approximation with tanh; their masks block by block, of padding, none."""
    if not usable(dtype):
        pytest.skip("no kernels that train in this type")
    kind, sizes = FORMS[form]
    values, given = DESCENDANTS[kind]
    torch.manual_seed(0)
    made = build_model({"kind": kind, **SIZES, **values, **sizes}, "test").train()
    for name, parameter in made.named_parameters():
        if name.endswith("norm.weight"):  # ones would hide one that is left out
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    for name, parameter in made.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.3)
    made = cast_stacks(made, dtype) if dtype == torch.bfloat16 else made
    found, real = [], given[1] if kind == "bert" else slice(None)
    for way, each in ((as_a_whole, made), (block_by_block, exact(made))):
        with way() as whole:
            inputs = [x.to(next(each.parameters()).dtype) if x.is_floating_point() else x for x in given]
            hidden = accelerate(each).hidden(*inputs)[real].float()
        assert way is block_by_block or whole == [True]
        (hidden * torch.randn(hidden.shape, generator=torch.Generator().manual_seed(1))).sum().backward()
        weights = {name: p for name, p in each.named_parameters() if p.grad is not None}
        found.append((hidden.detach(), {name: p.grad.float() for name, p in weights.items()}))
    looser = 6 if dtype == torch.float32 else 1  # GELU's slope is known to 6e-7
    (hidden, gradients), (expected, expected_gradients) = found
    assert (hidden - expected).abs().max() < looser * HIDDEN[dtype] * expected.abs().max()
    for name, gradient in expected_gradients.items():
        if not name.endswith("key.bias"):
            difference = (gradients[name] - gradient).norm()
            size = gradient.norm()
            if "query" in name or "key" in name:  # near 0: keys weigh nearly the same, and differences are rounded
                size = torch.maximum(size, 0.01 * max(each.norm() for each in expected_gradients.values()))
            assert difference < looser * GRADIENTS[dtype] * size + 2e-6, name


@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_the_gradient_is_that_of_what_dropout_left(norm_order: str) -> None:
    """Along its own direction the loss changes as the gradient says, with the same elements dropped each time."""
    if not usable(torch.float32):
        pytest.skip("no kernels")
    made = model(dropout=0.3, attention_dropout=0.2, norm_order=norm_order, positions="rotary")
    given = pairs(40, True)
    with as_a_whole() as whole:
        _, gradients = computed(made, given)
        weights = {name: p for name, p in made.named_parameters() if name in gradients and "layers" in name}
        size = torch.cat([gradients[name].flatten() for name in weights]).norm()

        def moved(step: float) -> float:
            with torch.no_grad():
                for name, weight in weights.items():
                    weight += step / size * gradients[name]
            torch.manual_seed(5)
            hidden = accelerate(made).hidden(*given)[given[3] != 0].double()
            factors = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(1))
            return (hidden * factors).sum().item()

        slope = (moved(0.004) - moved(-0.008)) / 0.008
    assert all(whole)
    assert abs(slope - float(size)) < 0.01 * float(size)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_padding_changes_no_bit(dtype: torch.dtype) -> None:
    """Neither how wide it is nor what it holds; its own result and gradient are 0."""
    if not usable(dtype):
        pytest.skip("no kernels that train in this type")
    made = model(positions="rotary", dropout=0.1)
    stack = accelerate(cast_stacks(made, dtype) if dtype == torch.bfloat16 else made).decoder
    x, memory = torch.randn(3, 20, 64).to(dtype), torch.randn(3, 17, 64).to(dtype)
    lengths, memory_lengths = torch.tensor([20, 13, 0]), torch.tensor([9, 17, 4])
    used = torch.arange(20) < lengths[:, None]
    found = []
    for extra, filling in ((0, 1.0), (0, -7.0), (11, 3.0)):
        inputs = [
            torch.cat([each, each.new_zeros(3, extra, 64)], 1).masked_fill_(~below(of, each.size(1) + extra), filling)
            for each, of in ((x, lengths), (memory, memory_lengths))
        ]
        inputs = [each.requires_grad_() for each in inputs]
        own, other = (
            below(*each)[:, None].transpose(2, 3) for each in ((lengths, 20 + extra), (memory_lengths, 17 + extra))
        )
        causal = torch.ones(20 + extra, 20 + extra, dtype=torch.bool).tril()
        torch.manual_seed(3)
        stack.zero_grad()
        with as_a_whole() as whole:
            result = stack(inputs[0], Mask(allowed=own & causal), inputs[1], Mask(allowed=other))
        result.float().square().sum().backward()
        assert whole == [True]
        assert not result[:, :20][~used].any()
        assert not result[:, 20:].any()
        gradients = [inputs[0].grad[:, :20], inputs[1].grad[:, :17], *(p.grad for p in stack.parameters())]
        found.append([result[:, :20].detach(), *gradients])
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))


def below(lengths: Tensor, width: int) -> Tensor:
    """[sentences, width, 1]"""
    return (torch.arange(width) < lengths[:, None])[:, :, None]


def test_a_mask_that_changes_before_the_gradient_is_noticed() -> None:
    """It says where the saved numbers lie."""
    if not usable(torch.float32):
        pytest.skip("no kernels")
    made, (source, target, source_mask, target_mask) = model(), pairs(20, False)
    with as_a_whole() as whole:
        hidden = accelerate(made).hidden(source, target, source_mask, target_mask)
    assert all(whole)
    source_mask[:] = True
    with pytest.raises(RuntimeError, match="inplace"):
        hidden.sum().backward()


def test_dropout_drops_its_share_and_is_another_one_each_time() -> None:
    if not usable(torch.float32):
        pytest.skip("no kernels")
    made = accelerate(model(dropout=0.5))
    given = pairs(64, True)
    torch.manual_seed(1)
    first, second = made.hidden(*given), made.hidden(*given)
    torch.manual_seed(1)
    assert torch.equal(made.hidden(*given), first)
    assert not torch.equal(first, second)
    made.eval()
    with as_a_whole() as whole:
        still = made.hidden(*given)
    assert all(whole)
    assert torch.equal(made.hidden(*given), still)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("form", ["encoder_decoder", "llama, biases"])
def test_threads_change_no_bit(form: str, dtype: torch.dtype) -> None:
    if not usable(dtype):
        pytest.skip("no kernels that train in this type")
    made = model(dropout=0.1, positions="rotary")
    if form in FORMS:
        values = {**SIZES, "vocab_size": 40, **FORMS[form][1], "dropout": 0.1}
        made = build_model({"kind": "gpt", **values}, "test").train()
    stack = accelerate(cast_stacks(made, dtype) if dtype == torch.bfloat16 else made).decoder
    x = torch.randn(7, 33, 64).to(dtype)
    memory = torch.randn(7, 30, 64).to(dtype) if form == "encoder_decoder" else None
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            torch.manual_seed(2)
            stack.zero_grad()
            result = stack(x.clone().requires_grad_(), None, memory, None)
            result.backward(torch.ones_like(result))
            found.append([result.detach(), *(p.grad for p in stack.parameters())])
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))


UNSUPPORTED: dict[str, tuple[dict[str, Any], str]] = {
    "d_ff": ({"d_ff": 100}, "d_ff=100 is not a multiple of 64"),
    "d_k": ({"d_k": 16}, "2 heads of 16 do not fill a multiple of 64"),
    "d_model": ({"d_model": 96, "n_heads": 3}, "d_model=96 is not a multiple of 64"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_a_stack_of_unsupported_sizes_goes_block_by_block_and_equals_pytorch(case: str) -> None:
    if not usable(torch.float32):
        pytest.skip("no kernels")
    values, reason = UNSUPPORTED[case]
    made, given = model(**values), pairs(20, True)
    assert {one.reason for one in route(made) if one.part in ("encoder", "decoder")} == {reason}
    with as_a_whole() as whole:
        hidden, gradients = computed(made, given)
    assert whole == [False, False]
    with block_by_block():
        expected, expected_gradients = computed(exact(made), given)
    torch.testing.assert_close(hidden, expected, atol=1e-5, rtol=1e-5)
    for name, gradient in expected_gradients.items():
        torch.testing.assert_close(gradients[name], gradient, atol=1e-4, rtol=1e-4)


def test_hypotheses_of_one_sentence_go_block_by_block() -> None:
    decoder = accelerate(model()).decoder
    with as_a_whole() as whole:
        assert decoder(torch.randn(6, 5, 64), None, torch.randn(3, 4, 64), None).shape == (6, 5, 64)
    assert whole == [False]


@pytest.mark.parametrize("selected", [None, [0, 3, 3]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_the_gradient_of_the_memory_is_zero_if_all_positions_are_padding(
    dtype: torch.dtype, selected: list[int] | None
) -> None:
    """A new thread computes them, since its buffers are empty."""
    if not usable(dtype):
        pytest.skip("no kernels that train in this type")
    made = model()
    decoder = accelerate(cast_stacks(made, dtype) if dtype == torch.bfloat16 else made).decoder
    memory = torch.randn(1, 4, 64, dtype=dtype, requires_grad=True)

    def compute() -> None:
        hidden = Mask(allowed=torch.zeros(1, 1, 1, 9, dtype=torch.bool))
        x = torch.randn(1, 9, 64, dtype=dtype, requires_grad=True)
        rows = None if selected is None else torch.tensor(selected)
        decoder(x, hidden, memory, None, selected=rows).sum().backward()

    with as_a_whole() as whole:
        thread = threading.Thread(target=compute)
        thread.start()
        thread.join()
    assert whole == [True]
    assert memory.grad is not None
    assert not memory.grad.any()
    assert not any(p.grad.any() for p in decoder.layers.parameters() if p.grad is not None)


def test_a_decoder_without_memory_goes_block_by_block() -> None:
    """As in PyTorch, its cross-attention then attends to the layer's own input."""
    made, x = model(), torch.randn(3, 7, 64)
    with as_a_whole() as whole:
        found = accelerate(made).decoder(x)
    assert whole == [False]
    torch.testing.assert_close(found, made.decoder(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("side", ["original", "accelerated"])
def test_a_hook_of_either_model_is_called_and_changes_no_number(side: str) -> None:
    if not usable(torch.float32):
        pytest.skip("no kernels")
    made, given, calls = model(), pairs(20, True), []
    expected, expected_gradients = computed(made, given)
    accelerated = accelerate(made)
    hooked = made if side == "original" else accelerated
    attention = hooked.decoder.layers[1].cross_attention
    handle = attention.register_forward_pre_hook(lambda _, inputs: calls.append(len(inputs)))
    with as_a_whole() as whole:
        hidden, gradients = computed(made, given)
    handle.remove()
    assert whole == [True, False]
    assert calls == [4]
    torch.testing.assert_close(hidden, expected, atol=1e-5, rtol=1e-5)
    for name, gradient in expected_gradients.items():
        torch.testing.assert_close(gradients[name], gradient, atol=1e-4, rtol=1e-4)


def test_a_hook_on_the_final_norm_is_called() -> None:
    if not usable(torch.float32):
        pytest.skip("no kernels")
    made, calls = model(norm_order="pre"), []
    made.encoder.final_norm.register_forward_hook(lambda *_: calls.append(1))
    with as_a_whole() as whole:
        accelerate(made).hidden(*pairs(20, True))
    assert whole == [False, True]
    assert calls == [1]


@pytest.mark.parametrize(
    ("order", "norm"), [("pre", None), ("pre", RMSNorm(64)), ("pre", nn.Identity()), ("post", LayerNorm(64))]
)
def test_a_final_norm_that_was_exchanged_is_computed_as_it_is(order: str, norm: nn.Module | None) -> None:
    made, x = model(norm_order=order), torch.randn(3, 7, 64)
    form = accelerate(made).encoder
    form.final_norm = made.encoder.final_norm = norm
    with as_a_whole() as whole:
        found = form(x.requires_grad_())
    assert whole == [False]
    torch.testing.assert_close(found, made.encoder(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("part", ["layers.0.feed_forward.inner", "layers.1.self_attention.query", "final_norm"])
@pytest.mark.parametrize("name", ["weight", "bias"])
def test_parametrized_weights_are_read(part: str, name: str) -> None:
    class Twice(nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            return 2 * weight

    made, x = model(norm_order="pre"), torch.randn(3, 7, 64, requires_grad=True)
    form = accelerate(made).encoder
    register_parametrization(form.get_submodule(part), name, Twice())
    found = form(x)
    with block_by_block():
        expected = form(x)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_a_trace_of_the_model_or_its_accelerated_form_goes_block_by_block() -> None:
    made = model()
    for traced in (made, accelerate(made)):
        with as_a_whole() as whole, record(traced) as found:
            traced.hidden(*pairs(20, True))
        assert whole == [False, False]
        assert "decoder.layers.1.cross_attention.weights" in found


def test_frozen_dropout_of_one_layer_goes_block_by_block() -> None:
    made = accelerate(model(dropout=0.2))
    made.encoder.layers[1].self_attention_norm.eval()
    with as_a_whole() as whole:
        made.hidden(*pairs(20, True))
    assert whole == [False, usable(torch.float32)]


def test_an_input_of_another_width_is_refused() -> None:
    if kernels() is None:
        pytest.skip("there are no kernels here")
    encoder = accelerate(model()).encoder
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        encoder(torch.randn(2, 5, 128))
