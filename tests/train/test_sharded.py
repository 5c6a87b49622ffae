"""Sharded training: checkpoints written by all processes, read by any number, and whole or absent whatever fails."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from process_group import Job, train_in_group
from safetensors.torch import load_file
from test_distributed import bits, losses, values_of

import tiny_run
from glassformer.errors import CheckpointError
from glassformer.models.registry import weights_of
from glassformer.predict.loading import load_run
from glassformer.storage.checkpoint import load_checkpoint, verify
from glassformer.storage.run_folder import RunFolder
from glassformer.storage.shared_save import SharedSave
from glassformer.train import parse_config, saving
from glassformer.train.build import build

STEPS = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of 2 processes, and of other numbers before and after; runs with a disk that is full for one process."""
    folder = tmp_path_factory.mktemp("sharded")
    values = values_of(tmp_path_factory, "translation")
    values["train"] |= {"save_every": 2, "ema": 0.9, "engine": "torch", "parallel": "fsdp"}
    values["model"] |= {"n_encoder_layers": 2}

    def job(run: str, steps: int = STEPS, **more: Any) -> Job:
        changed = values | {"train": values["train"] | {"max_steps": steps}}
        return Job(changed, folder / run, **more)

    begun = ["2_1_2", "2_4", "full_0", "full_1", "damaged"]
    two = [job("whole"), *(job(name, 2) for name in begun), job("half", 4), job("half", resume=True)]
    two += [job("full_0", resume=True, file_limits={"0": 20_000}), job("full_1", resume=True, file_limits={"1": 2000})]
    started = job("started", 1)
    started.values["train"]["start_from"] = str(folder / "whole")
    errors = train_in_group(2, [*two, started], folder / "two")
    assert [any(error) for error in errors] == [False] * 8 + [True] * 2 + [False]
    (folder / "errors.json").write_text(json.dumps(errors[-3:-1]), encoding="utf-8")
    one = replace(job("unsharded"), values=values | {"train": values["train"] | {"parallel": "ddp"}})
    assert train_in_group(1, [job("2_1_2", 4, resume=True), one], folder / "one") == [[""]] * 2
    assert train_in_group(2, [job("2_1_2", resume=True)], folder / "two_again") == [["", ""]]
    assert train_in_group(4, [job("2_4", resume=True)], folder / "four") == [[""] * 4]
    return folder


def newest(run: Path) -> Path:
    return RunFolder.open(run).checkpoints()[-1]


def test_each_process_writes_its_own_shards(folder: Path) -> None:
    state = newest(folder / "whole") / "training_state"
    files = sorted(state.glob("shard_*"))
    assert [file.name for file in files] == [f"shard_0000{rank}_of_00002.safetensors" for rank in range(2)]
    sizes = [sum(tensor.numel() for tensor in load_file(file).values()) for file in files]
    weights = load_file(newest(folder / "whole") / "model.safetensors")
    assert sum(sizes) == 3 * sum(tensor.numel() for tensor in weights.values())  # two moments, and the live weights
    assert sizes[0] == pytest.approx(sizes[1], rel=0.01)
    rest = load_file(state / "tensors.safetensors")
    assert all(name.startswith("random.") or name.endswith(".step") for name in rest)


def test_resumed_sharded_run_is_bit_identical(folder: Path) -> None:
    assert bits(folder / "half") == bits(folder / "whole")
    whole, half = (load_checkpoint(newest(folder / run), training=True).training for run in ("whole", "half"))
    assert whole is not None and half is not None
    assert all(torch.equal(half.tensors[name], tensor) for name, tensor in whole.tensors.items())


@pytest.mark.parametrize("run", ["2_1_2", "2_4", "unsharded"])
def test_another_number_of_processes_takes_the_same_steps(folder: Path, run: str) -> None:
    assert len(losses(folder / run)) == STEPS
    assert losses(folder / run) == pytest.approx(losses(folder / "whole"), rel=1e-6, abs=0.0)
    ours, expected = (load_checkpoint(newest(folder / name), training=True) for name in (run, "whole"))
    assert ours.training is not None and expected.training is not None
    assert ours.training.values["batches"] == expected.training.values["batches"]
    assert ours.training.tensors.keys() == expected.training.tensors.keys()
    for name, tensor in expected.weights.items():
        if name.endswith(".key.bias"):
            continue  # its gradient is 0 but for rounding, which Adam makes as large as any other
        assert torch.allclose(ours.weights[name], tensor, rtol=1e-3, atol=1e-5), name


def test_first_weights_are_those_of_an_ordinary_construction(folder: Path) -> None:
    """The first loss shows the weights; ``started`` began with those that ``whole`` ended with."""
    assert losses(folder / "whole")[0] == pytest.approx(losses(folder / "unsharded")[0], rel=1e-7)
    assert losses(folder / "started")[0] < losses(folder / "whole")[0]


def test_a_sharded_checkpoint_is_used_like_any_other(folder: Path) -> None:
    loaded = load_run(newest(folder / "whole"))
    stored = load_file(newest(folder / "whole") / "model.safetensors")
    assert all(torch.equal(w, stored[name]) for name, w in weights_of(loaded.model).items())


@pytest.mark.parametrize(("run", "rank"), [("full_0", 0), ("full_1", 1)])
def test_full_disk_of_one_process_ends_all_and_keeps_the_checkpoint(folder: Path, run: str, rank: int) -> None:
    errors = json.loads((folder / "errors.json").read_text("utf-8"))[rank]
    reason = f"{folder / run}/checkpoints/step_00000004: cannot be saved: file too large"
    origin = f"process {rank}: " if rank else ""
    assert errors[0].split(": ", 1)[1] == origin + reason
    assert errors[1] == f"FailedElsewhereError: process {rank}: {reason}"
    assert [item.name for item in (folder / run / "checkpoints").iterdir()] == ["step_00000002"]
    verify(folder / run / "checkpoints" / "step_00000002")


def test_nothing_more_is_gathered_after_a_lost_connection(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each further exchange would wait for the process that is gone."""
    gathered = []

    def lose(tensor: torch.Tensor) -> None:
        gathered.append(tensor)
        raise RuntimeError("[/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:4040")

    state = build(tiny_run.made(tmp_path_factory).config())
    save = SharedSave(tmp_path / "step_00000001", SharedSave.begin(tmp_path / "step_00000001", {}, {}, {})[0])
    monkeypatch.setattr(saving, "whole_tensor", lose)
    with pytest.raises(RuntimeError, match="Connection closed by peer"):
        saving._write_weights(state, save)
    assert len(gathered) == 1


def damages() -> dict[str, Callable[[Path], None]]:
    def flip(file: Path) -> None:
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)

    return {"flipped": flip, "missing": Path.unlink, "cut": lambda file: file.write_bytes(file.read_bytes()[:-4])}


@pytest.mark.parametrize("kind", damages())
def test_damaged_shard_is_named(folder: Path, tmp_path: Path, kind: str) -> None:
    copy = shutil.copytree(newest(folder / "damaged"), tmp_path / "copy")
    name = "training_state/shard_00001_of_00002.safetensors"
    damages()[kind](copy / name)
    with pytest.raises(CheckpointError, match=f"^{copy}: {name} is "):
        load_checkpoint(copy, training=True)


def test_one_process_loads_all_shards(folder: Path) -> None:
    """The moments of a run of two processes, in an optimizer of one."""
    path = newest(folder / "whole")
    saved = load_checkpoint(path, training=True)
    assert saved.training is not None
    state = build(parse_config(saved.training.values["config"]), goes_on=saved)
    state.restore(saved.weights, saved.training, "test")
    for name, parameter in weights_of(state.model).items():
        moment = state.optimizer.state[parameter]["exp_avg"]
        assert torch.equal(moment, saved.training.tensors[f"optimizer.{name}.exp_avg"])
        assert moment.shape == parameter.shape
