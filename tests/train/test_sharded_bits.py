"""DDP and FSDP2 take the same steps: equal to the bit by two processes, and near float32 in bfloat16."""

from pathlib import Path
from typing import Any

import pytest
import torch
from process_group import Job, train_in_group
from test_distributed import losses
from tiny_settings import values_of

from glassformer.storage.checkpoint import load_checkpoint
from glassformer.storage.run_folder import RunFolder
from processor import needs_bfloat16

STEPS = 4
MODELS: dict[str, dict[str, Any]] = {
    "translation": {"n_decoder_layers": 3},  # whose gradients with respect to the encoder's output are added up
    "language": {"dropout": 0.1},
    "masked": {"attention_dropout": 0.1},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of each model, replicated and sharded, whose matrices do not divide into vectors of a processor."""
    folder = tmp_path_factory.mktemp("bits")
    jobs = []
    for task, model in MODELS.items():
        for parallel in ("ddp", "fsdp"):
            values = values_of(tmp_path_factory, task)
            values["model"] |= {"d_ff": 37, **model}
            values["optimizer"] = values.get("optimizer", {}) | {"clip_norm": 0.05}
            values["train"] |= {"engine": "torch", "parallel": parallel, "ema": 0.9}
            values["train"] |= {"max_steps": STEPS, "save_every": STEPS}
            jobs.append(Job(values, folder / f"{task}-{parallel}"))
    assert train_in_group(2, jobs, folder / "group") == [["", ""]] * len(jobs)
    return folder


@pytest.mark.parametrize("task", MODELS)
def test_sharded_training_is_bit_identical_to_a_replicated_one(folder: Path, task: str) -> None:
    ddp, fsdp = (
        load_checkpoint(RunFolder.open(folder / f"{task}-{parallel}").checkpoints()[-1], training=True)
        for parallel in ("ddp", "fsdp")
    )
    assert ddp.training is not None and fsdp.training is not None
    for ours, expected in ((fsdp.weights, ddp.weights), (fsdp.training.tensors, ddp.training.tensors)):
        assert ours.keys() == expected.keys()
        assert [name for name in expected if not torch.equal(ours[name], expected[name])] == []
    for name in ("loss", "gradient_norm"):
        assert losses(folder / f"{task}-fsdp", name) == losses(folder / f"{task}-ddp", name)


@needs_bfloat16
def test_sharded_training_in_bfloat16_stays_near_float32(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The loss of each step is within bfloat16's 8 bits."""
    jobs = []
    for task in ("translation", "language"):
        for precision in ("float32", "bfloat16"):
            values = values_of(tmp_path_factory, task)
            values["train"] |= {"engine": "auto", "parallel": "fsdp", "precision": precision}
            jobs.append(Job(values, tmp_path / f"{task}-{precision}"))
    assert train_in_group(2, jobs, tmp_path / "group") == [["", ""]] * len(jobs)
    for task in ("translation", "language"):
        low, high = (losses(tmp_path / f"{task}-{precision}") for precision in ("bfloat16", "float32"))
        assert low != high
        assert low == pytest.approx(high, rel=2**-6)
