"""The end of a step in the kernels is PyTorch's Adam, clipping and average, and either goes on with the other's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.models.registry import weights_of
from glassformer.native.library import kernels
from glassformer.run_folder import RunFolder
from glassformer.train import optim
from glassformer.train import step as steps
from glassformer.train.build import build
from glassformer.train.step import train_step
from tiny_run import TinyRun

SETTINGS: dict[str, dict[str, Any]] = {
    "adam": {"optimizer.kind": "adam", "optimizer.clip_norm": 0.0},
    "clipped": {"optimizer.kind": "adam", "optimizer.clip_norm": 0.1},
    "decoupled": {"optimizer.kind": "adamw", "optimizer.weight_decay": 0.1, "train.ema": 0.9},
    "accumulating": {"train.accumulate": 3, "train.ema": 0.9, "optimizer.clip_norm": 1.0},
    "bfloat16": {"train.precision": "bfloat16", "train.ema": 0.5, "optimizer.clip_norm": 1.0},
}


@pytest.fixture(autouse=True)
def _compiled() -> None:
    if kernels() is None:
        pytest.skip("there is no C++ compiler here")


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
    tolerance = 0.1 if kind == "bfloat16" else 2e-4  # after four steps, each from the last one's rounding
    for name, way in {"kernel": [False] * 4, "both": [False, True, True, False]}.items():
        found = trained(tiny, tmp_path / name, changes, way)
        assert found.keys() == expected.keys()
        for each, tensor in expected.items():
            assert (found[each] - tensor).norm() <= tolerance * tensor.norm() + 1e-9, (name, each)
