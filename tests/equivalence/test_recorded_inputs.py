"""A native stack trains in one kernel while the inputs of a layer's cross-attention are recorded."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from glassformer.layers.mask import Mask
from glassformer.models.device import cast_stacks
from glassformer.models.registry import build_model
from glassformer.native import accelerate
from glassformer.native import stack as native_stack
from glassformer.native.library import kernels
from glassformer.taps import InputRecorder

BATCH, LENGTH, SOURCE, D_MODEL = 4, 21, 9, 64
VISIBLE = torch.arange(LENGTH) < torch.tensor([21, 17, 0, 1])[:, None]
TOLERANCES = {torch.float32: 2e-5, torch.bfloat16: 0.15}


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The recorded layer of each call that the kernel of a whole stack computed."""
    found, apply = list[int](), native_stack._Stack.apply
    monkeypatch.setattr(
        native_stack._Stack, "apply", lambda *given: (found.append(given[1].recorded), apply(*given))[1]
    )
    return found


def decoder(norm_order: str, dtype: torch.dtype = torch.float32, dropout: float = 0.0) -> Any:
    """A decoder in one kernel."""
    if kernels() is None or (dtype == torch.bfloat16 and not kernels().has_bfloat16):
        pytest.skip("no kernels that train in this type")
    torch.manual_seed(0)
    sizes = {"d_model": D_MODEL, "n_heads": 2, "d_ff": 128, "n_encoder_layers": 1, "n_decoder_layers": 3}
    values = {"vocab_size": 40, "norm_order": norm_order, "dropout": dropout, **sizes}
    made = build_model({"kind": "encoder_decoder", **values}, "test").train()
    for name, parameter in made.named_parameters():
        if parameter.dim() == 1:  # zeros and ones would hide one that is left out
            torch.nn.init.normal_(parameter, mean=0.0 if name.endswith("bias") else 1.0, std=0.3)
    return accelerate(cast_stacks(made, dtype) if dtype == torch.bfloat16 else made).decoder


def computed(stack: Any, layer: int | None, own: float = 1.0, recorder: Callable[..., None] | None = None) -> list[Any]:
    """The output, the recorded inputs, and all gradients of a random sum of both, the output ``own`` times."""
    torch.manual_seed(1)
    x = torch.randn(BATCH, LENGTH, D_MODEL).requires_grad_()
    memory = torch.randn(BATCH, SOURCE, D_MODEL).bfloat16().to(stack.dtype).requires_grad_()
    memory_mask = Mask(torch.ones(BATCH, SOURCE, dtype=torch.bool), VISIBLE)
    recorder, given = recorder or InputRecorder(), []
    handle = None if layer is None else stack.layers[layer].cross_attention.register_forward_pre_hook(recorder)
    stack.zero_grad()
    torch.manual_seed(2)
    y = stack(x, Mask(VISIBLE, VISIBLE), memory, memory_mask)
    torch.manual_seed(3)
    total = own * (y.float() * torch.randn(y.shape))[VISIBLE].sum()
    if handle is not None:
        handle.remove()
        given = recorder.calls[0] if isinstance(recorder, InputRecorder) else []
    if given:
        total = total + (given[0].float() * torch.randn(given[0].shape))[VISIBLE].sum()
        assert given[1] is memory and given[2] is memory_mask
    total.backward()
    gradients = {name: parameter.grad for name, parameter in stack.named_parameters()}
    return [y.detach(), given[0].detach() if given else None, gradients | {"x": x.grad, "memory": memory.grad}]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("norm_order", ["post", "pre"])
@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("own", [1.0, 0.0], ids=["and the output", "alone"])
def test_inputs_and_gradients_are_those_of_the_blocks(
    own: float, layer: int, norm_order: str, dtype: torch.dtype, whole: list[int]
) -> None:
    stack = decoder(norm_order, dtype)
    y, given, gradients = computed(stack, layer, own)
    assert whole == [layer]
    expected, expected_given, expected_gradients = computed(copy.deepcopy(stack).double(), layer, own)
    assert whole == [layer]  # no kernel computes in float64
    for one, other in ((y, expected), (given, expected_given)):
        assert one.dtype == dtype and other.dtype == torch.float64
        assert (one - other)[VISIBLE].norm() <= TOLERANCES[dtype] * other[VISIBLE].norm()
    for name, other in expected_gradients.items():
        if not name.endswith("key.bias"):  # of all keys the same, which the softmax does not see: rounding alone
            other = torch.zeros_like(gradients[name]) if other is None else other
            assert (gradients[name] - other).norm() <= TOLERANCES[dtype] * other.norm(), name


@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_recording_changes_no_bit_of_the_output_nor_its_dropout(norm_order: str, whole: list[int]) -> None:
    stack = decoder(norm_order, dropout=0.25)
    with_recorder, without = computed(stack, 1)[0], computed(stack, None)[0]
    assert whole == [1, native_stack.NO_LAYER]
    assert torch.equal(with_recorder, without)


def test_each_recorder_of_the_layer_is_called(whole: list[int]) -> None:
    stack, recorders = decoder("pre"), [InputRecorder(), InputRecorder()]
    handle = stack.layers[2].cross_attention.register_forward_pre_hook(recorders[0])
    computed(stack, 2, recorder=recorders[1])
    handle.remove()
    assert whole == [2] and [len(one.calls) for one in recorders] == [1, 1]
    assert recorders[0].calls[0][0] is recorders[1].calls[0][0]


class Doubling(InputRecorder):
    """It changes the input, so it is not only a recorder."""

    def __call__(self, module: nn.Module, arguments: tuple[Any, ...]) -> Any:
        super().__call__(module, arguments)
        return 2 * arguments[0], *arguments[1:]


def none_at_all(module: nn.Module, *_: Any) -> None:
    """A hook that the kernel does not know."""


OTHERS: dict[str, Callable[[Any, Any], tuple[Any, InputRecorder]]] = {
    "another hook": lambda first, _: (first.cross_attention.register_forward_pre_hook(none_at_all), InputRecorder()),
    "a subclass": lambda *_: (None, Doubling()),
    "two layers": lambda _, second: (
        second.cross_attention.register_forward_pre_hook(InputRecorder()),
        InputRecorder(),
    ),
    "inside": lambda first, _: (first.cross_attention.query.register_forward_hook(none_at_all), InputRecorder()),
    "self-attention": lambda first, _: (
        first.self_attention.register_forward_pre_hook(InputRecorder()),
        InputRecorder(),
    ),
}
"""A hook besides the recorder of the first layer's cross-attention, or another recorder."""


@pytest.mark.parametrize("case", OTHERS)
def test_with_other_hooks_the_stack_runs_block_by_block(case: str, whole: list[int]) -> None:
    stack = decoder("pre")
    plain: Tensor = computed(stack, None)[0]
    whole.clear()
    handle, recorder = OTHERS[case](*stack.layers[:2])
    y = computed(stack, 0, recorder=recorder)[0]
    if handle is not None:
        handle.remove()
    assert whole == []
    assert torch.allclose(y[VISIBLE], plain[VISIBLE], atol=1e-5) is (case != "a subclass")
