"""The end of a step in the kernels is PyTorch's Adam, clipping and average, and either goes on with the other's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.models.registry import weights_of
from glassformer.native.library import kernels
from glassformer.storage.run_folder import RunFolder
from glassformer.train import optim
from glassformer.train import step as steps
from glassformer.train.build import build
from glassformer.train.state import TrainState
from glassformer.train.step import train_step
from processor import needs_bfloat16
from tiny_run import TinyRun

SETTINGS: dict[str, dict[str, Any]] = {
    "adam": {"optimizer.kind": "adam", "optimizer.clip_norm": 0.0},
    "clipped": {"optimizer.kind": "adam", "optimizer.clip_norm": 0.1},
    "decoupled": {"optimizer.kind": "adamw", "optimizer.weight_decay": 0.1, "train.ema": 0.9},
    "accumulating": {"train.accumulate": 3, "train.ema": 0.9, "optimizer.clip_norm": 1.0},
}


@pytest.fixture(autouse=True)
def _compiled() -> None:
    if kernels() is None:
        pytest.skip("there are no kernels here")


def trained(tiny: TinyRun, folder: Path, changes: dict[str, Any], by_pytorch: Sequence[bool]) -> dict[str, Tensor]:
    """All that a run consists of after as many steps, of which some are taken by PyTorch, and their norms."""
    state, run, norms = build(tiny.config(changes)), RunFolder.create(folder), []
    for pytorch in by_pytorch:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(steps, "weight_update", optim.TorchUpdate if pytorch else optim.NativeUpdate)
            norms.append(train_step(state, run).gradient_norm)
    found = {"norms": torch.tensor(norms), **state.snapshot().tensors}
    for part, model in {"best": state.eval_model, "compute": state.compute_model}.items():
        found |= {f"{part}.{name}": weight.detach().float() for name, weight in weights_of(model).items()}
    # The softmax does not see what all keys share: the gradient of their bias is rounding, and Adam makes steps of it.
    return {name: tensor for name, tensor in found.items() if not name.startswith("random") and "key.bias" not in name}


@pytest.mark.parametrize("kind", SETTINGS)
def test_the_kernel_takes_pytorchs_step(tiny: TinyRun, tmp_path: Path, kind: str) -> None:
    changes = {"model.dropout": 0.0, "optimizer.learning_rate": 1e-3, **SETTINGS[kind]}
    expected = trained(tiny, tmp_path / "pytorch", changes, [True] * 4)
    tolerance = 2e-4  # after four steps, each from the last one's rounding
    for name, way in {"kernel": [False] * 4, "both": [False, True, True, False]}.items():
        found = trained(tiny, tmp_path / name, changes, way)
        assert found.keys() == expected.keys()
        for each, tensor in expected.items():
            assert (found[each] - tensor).norm() <= tolerance * tensor.norm() + 1e-9, (name, each)


@pytest.mark.parametrize("kind", ["decoupled", "accumulating"])
def test_the_kernel_raises_the_version_of_each_tensor_that_it_writes(tiny: TinyRun, tmp_path: Path, kind: str) -> None:
    state, run = build(tiny.config(SETTINGS[kind])), RunFolder.create(tmp_path / "run")
    train_step(state, run)
    tensors = [each for same in state.weights for each in same if each is not None]
    before = [(each.clone(), each._version) for each in tensors]
    train_step(state, run)
    written = [each for each, (values, _) in zip(tensors, before, strict=True) if not torch.equal(each, values)]
    assert len(written) > 20
    for each, (values, version) in zip(tensors, before, strict=True):
        assert torch.equal(each, values) or each._version > version


def test_a_gradient_with_weights_before_the_kernels_step_is_refused(tiny: TinyRun, tmp_path: Path) -> None:
    state = build(tiny.config(SETTINGS["adam"]))
    weight = state.weights[0][0]
    squared = (weight * weight).sum()
    train_step(state, RunFolder.create(tmp_path / "run"))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squared.backward()


class BothUpdates:
    """The update of the kernel and that of PyTorch from the same state; training goes on from the latter."""

    compared = 0

    def __init__(self, state: TrainState):
        self.state = state
        self.gradients = [(weight, weight.grad, low, low.grad) for weight, low, _ in state.weights]
        self.native = optim.NativeUpdate(state)
        self.norm = self.native.norm

    def apply(self) -> None:
        optimizer, before = self.state.optimizer, self.copies()
        moments = {weight: {key: x.clone() for key, x in kept.items()} for weight, kept in optimizer.state.items()}
        self.native.apply()
        found = self.copies()
        with torch.no_grad():
            for name, tensor in self.tensors().items():
                tensor.copy_(before.get(name, tensor))
        optimizer.state.clear()
        optimizer.state.update(moments)
        for weight, gradient, low, low_gradient in self.gradients:
            weight.grad, low.grad = gradient, low_gradient
        update = optim.TorchUpdate(self.state)
        assert self.norm == pytest.approx(update.norm, rel=1e-6)
        update.apply()
        expected, lows = self.copies(), 0
        assert found.keys() == expected.keys()
        for name, tensor in expected.items():
            if tensor.dtype == torch.bfloat16:
                weight = found[name.replace("low", "weight")]
                assert torch.equal(found[name], weight.bfloat16()), name
                lows += 1
            else:
                torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-8, msg=name)
        assert lows > 10
        BothUpdates.compared += 1

    def tensors(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for number, (weight, low, average) in enumerate(self.state.weights):
            found |= {f"weight {number}": weight, f"low {number}": low, f"average {number}": average}
            found |= {f"{key} {number}": tensor for key, tensor in self.state.optimizer.state.get(weight, {}).items()}
        return found

    def copies(self) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self.tensors().items()}


@needs_bfloat16
def test_in_bfloat16_the_kernels_step_is_pytorchs_and_its_copy_is_rounded(
    tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the same gradients in bfloat16: weights, moments and average in float32, and the copy of the weights."""
    changes = {"train.precision": "bfloat16", "train.ema": 0.5, "optimizer.clip_norm": 0.5}
    state, run = build(tiny.config({"optimizer.learning_rate": 1e-3, **changes})), RunFolder.create(tmp_path / "run")
    monkeypatch.setattr(steps, "weight_update", BothUpdates)
    monkeypatch.setattr(BothUpdates, "compared", 0)
    for _ in range(4):
        train_step(state, run)
    assert BothUpdates.compared == 4
