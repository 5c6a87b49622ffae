"""DDP and FSDP2 take the same steps, to the bit, by any number of processes; in bfloat16 they stay near float32."""

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
RUNS: dict[tuple[int, str], dict[str, Any]] = {
    (2, "translation"): {"n_decoder_layers": 3},  # whose gradients with respect to the encoder's output are added up
    (2, "language"): {"dropout": 0.1},
    (2, "masked"): {"attention_dropout": 0.1},
    (4, "translation"): {"n_decoder_layers": 3},
    (4, "language divided in two"): {"n_heads": 4, "d_ff": 38, "dropout": 0.1},
}
"""Settings of the model, for a number of processes and a task."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of each model, replicated and sharded, whose matrices do not divide into vectors of a processor."""
    folder = tmp_path_factory.mktemp("bits")
    for size in (2, 4):
        jobs = []
        for task, model in [(task, model) for (n, task), model in RUNS.items() if n == size]:
            for parallel in ("ddp", "fsdp"):
                values = values_of(tmp_path_factory, task.partition(" ")[0])
                values["model"] |= {"d_ff": 37, **model}
                values["optimizer"] = values.get("optimizer", {}) | {"clip_norm": 0.05}
                values["train"] |= {"engine": "torch", "parallel": parallel, "ema": 0.9}
                values["train"] |= {"max_steps": STEPS, "save_every": STEPS}
                values["train"] |= {"tensor_parallel": 2 if task.endswith("divided in two") else 1}
                jobs.append(Job(values, folder / f"{size}-{task}-{parallel}"))
        assert train_in_group(size, jobs, folder / f"group_{size}") == [[""] * size] * len(jobs)
    return folder


@pytest.mark.parametrize(("size", "task"), RUNS)
def test_sharded_training_is_bit_identical_to_a_replicated_one(folder: Path, size: int, task: str) -> None:
    ddp, fsdp = (
        load_checkpoint(RunFolder.open(folder / f"{size}-{task}-{parallel}").checkpoints()[-1], training=True)
        for parallel in ("ddp", "fsdp")
    )
    assert ddp.training is not None and fsdp.training is not None
    for ours, expected in ((fsdp.weights, ddp.weights), (fsdp.training.tensors, ddp.training.tensors)):
        assert ours.keys() == expected.keys()
        assert [name for name in expected if not torch.equal(ours[name], expected[name])] == []
    for name in ("loss", "gradient_norm"):
        assert losses(folder / f"{size}-{task}-fsdp", name) == losses(folder / f"{size}-{task}-ddp", name)


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
