"""Hooks that are put on a model after it was accelerated: the accelerated form calls them and uses their results."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from glassformer.models.registry import build_model
from glassformer.native import accelerate
from glassformer.native.library import kernels

IDS = torch.randint(1, 40, (4, 9), generator=torch.Generator().manual_seed(0))
SMALL = {"vocab_size": 40, "d_model": 64, "n_heads": 2, "d_ff": 128, "dropout": 0.0}
MODELS: dict[str, dict[str, Any]] = {
    "whole": {"kind": "encoder_decoder", "n_encoder_layers": 2, "n_decoder_layers": 2},
    "operations": {"kind": "gpt", "n_layers": 2, "positions": "rotary", "attention": {"n_kv_heads": 1}},
}
PARTS: dict[str, dict[str, str]] = {
    "whole": {
        "model": "",
        "stack": "encoder",
        "block": "decoder.layers.0",
        "self-attention": "encoder.layers.1.self_attention",
        "cross-attention": "decoder.layers.1.cross_attention",
        "embedding": "source_embedding",
        "projection": "output_projection",
    },
    "operations": {
        "model": "",
        "stack": "decoder",
        "block": "decoder.layers.0",
        "self-attention": "decoder.layers.1.self_attention",
        "embedding": "embedding",
        "projection": "output_projection",
    },
}
CASES = [(kind, part) for kind, parts in PARTS.items() for part in parts]
READS_IDS = ("model", "embedding")
"""Parts that read token ids: their input has no gradient, so a backward hook cannot change it."""


@pytest.fixture(autouse=True)
def _kernels() -> None:
    if kernels() is None:
        pytest.skip("there are no kernels here")


def double(value: Any) -> Any:
    """``value`` with its tensors doubled; other ids in place of ids."""
    if isinstance(value, tuple):
        return tuple(map(double, value))
    if not isinstance(value, Tensor):
        return value
    return 2 * value if value.is_floating_point() else value.flip(-1)


HOOKS: dict[str, Callable[[nn.Module, list[str]], Any]] = {
    "forward": lambda module, calls: module.register_forward_hook(
        lambda module, inputs, output: calls.append("") or double(output)
    ),
    "forward pre": lambda module, calls: module.register_forward_pre_hook(
        lambda module, inputs: calls.append("") or double(inputs)
    ),
    "full backward": lambda module, calls: module.register_full_backward_hook(
        lambda module, d_inputs, d_outputs: calls.append("") or double(d_inputs)
    ),
    "full backward pre": lambda module, calls: module.register_full_backward_pre_hook(
        lambda module, d_outputs: calls.append("") or double(d_outputs)
    ),
}


def results(made: Any, of: Any, inputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """Output of ``made``, and the gradients that it leaves in the parameters of ``of``."""
    of.zero_grad()
    output = made(*inputs)
    output.square().sum().backward()
    return {name: p.grad.clone() for name, p in of.named_parameters()} | {"output": output.detach()}


def differ(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    """Names of the tensors that differ by more than rounding; the gradient of a key's bias is nothing but rounding."""
    return [
        name
        for name, tensor in other.items()
        if "key.bias" not in name
        and not torch.allclose(one[name], tensor, atol=2e-4 * float(tensor.abs().max()) + 1e-5, rtol=1e-3)
    ]


@pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")  # PyTorch's, for inputs that are ids
@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize(("kind", "part"), CASES)
def test_hook_registered_after_accelerate_replaces_the_result(kind: str, part: str, hook: str) -> None:
    torch.manual_seed(0)
    made = build_model({**SMALL, **MODELS[kind]}, "test").train()
    inputs = (IDS, IDS.flip(0)) if kind == "whole" else (IDS,)
    form = accelerate(made)
    assert form is not made
    before = results(form, made, inputs)
    calls: list[str] = []
    handle = HOOKS[hook](made.get_submodule(PARTS[kind][part]), calls)
    expected = results(made, made, inputs)
    wanted = len(calls)
    assert wanted > 0
    found = results(form, made, inputs)
    assert len(calls) == 2 * wanted
    assert differ(found, expected) == []
    if hook != "full backward" or part not in READS_IDS:
        assert differ(expected, before) != []
    handle.remove()
    assert differ(results(form, made, inputs), before) == []
    assert len(calls) == 2 * wanted


def test_hook_registered_after_accelerate_for_use_replaces_the_result() -> None:
    images = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    vit = {**SMALL, "kind": "vit", "n_classes": 5, "n_layers": 1, "image_size": [8, 8], "patch_size": 4}
    made = build_model({name: value for name, value in vit.items() if name != "vocab_size"}, "test").eval()
    form = accelerate(made)
    with torch.no_grad():
        before = form(images)
        made.encoder.final_norm.register_forward_hook(lambda module, inputs, output: double(output))
        found = form(images)
        torch.testing.assert_close(found, made(images), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(found, before, atol=1e-3)


def test_hook_registered_after_accelerate_changes_the_next_prompts() -> None:
    torch.manual_seed(0)
    made = build_model({**SMALL, **MODELS["operations"]}, "test").eval()
    form, mask = accelerate(made), torch.ones(IDS.shape, dtype=torch.bool)

    def logits(model: Any) -> Tensor:
        with torch.no_grad():
            return model.step(IDS[:, -1:], model.begin(IDS, mask)).clone()

    before = logits(form)
    made.decoder.layers[0].feed_forward.register_forward_hook(lambda module, inputs, output: double(output))
    found = logits(form)
    torch.testing.assert_close(found, logits(made), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(found, before, atol=1e-3)
