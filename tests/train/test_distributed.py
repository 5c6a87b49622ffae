"""Data parallel training: the same steps in any number of processes, exact resume, and one clear error for all."""

import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from process_group import Job, train_in_group
from tiny_settings import STEPS, values_of

import own_process
import tiny_run
from glassformer.storage.run_folder import step_of
from glassformer.train import parse_config
from glassformer.train.distributed import World
from glassformer.train.tasks import make_task

TASKS = ["translation", "language", "masked", "classification", "tagging", "images", "forecasting"]
EXACT = set(TASKS) - {"images", "forecasting"}
"""Tasks whose inputs are whole numbers, so that the model can compute in float64 where the task allows it."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Folder with a run of each task by a number of processes, in float64 where the task allows it."""

    @cache
    def made(size: int) -> Path:
        folder = tmp_path_factory.mktemp(f"world_{size}")
        jobs = []
        for task in TASKS:
            values = values_of(tmp_path_factory, task)
            values["train"]["engine"] = "torch"
            jobs.append(Job(values, folder / task, float64=task in EXACT))
        assert train_in_group(size, jobs, folder / "group") == [[""] * size] * len(jobs)
        return folder

    return made


def losses(run: Path, name: str = "loss") -> list[float]:
    """The loss of each reported step, or another of its numbers."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line[name] for line in lines if line["event"] == "progress"]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("size", [2, 4])
def test_losses_do_not_depend_on_the_number_of_processes(runs: Callable[[int], Path], size: int, task: str) -> None:
    alone, together = (losses(runs(n) / task) for n in (1, size))
    assert len(alone) == STEPS
    assert together == pytest.approx(alone, rel=1e-9 if task in EXACT else 1e-6, abs=0.0)


def bits(run: Path) -> list[str]:
    """Digest of the weights of each checkpoint."""
    files = sorted(run.glob("checkpoints/*/model.safetensors"))
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two processes, whole and resumed in their middle; of one that ended the run of two; and faulty ones."""
    folder = tmp_path_factory.mktemp("resumed")
    values = values_of(tmp_path_factory, "translation")
    values["model"] |= {"dropout": 0.1}
    values["train"] |= {"save_every": 3}

    def job(run: str, steps: int = STEPS, resume: bool = False, **train: Any) -> Job:
        changed = values | {"train": values["train"] | {"max_steps": steps, **train}}
        return Job(changed, folder / run, resume=resume)

    jobs = [job("ddp"), job("ddp_half", 3), job("ddp_half", resume=True)]
    jobs += [job("fsdp", parallel="fsdp"), job("fsdp_half", 3, parallel="fsdp")]
    jobs += [job("fsdp_half", resume=True, parallel="fsdp"), job("changing", 2), job("ddp_torch", engine="torch")]
    fine = [["", ""]] * len(jobs)
    jobs.append(replace(job("differing"), only_rank={"1": {"train.seed": 2}}))
    other = str(tmp_path_factory.getbasetemp() / "tiny" / "validation")
    jobs.append(replace(job("other_data"), only_rank={"1": {"data.train": [other]}}))
    errors = train_in_group(2, jobs, folder / "two")
    assert errors[:-2] == fine
    (folder / "errors.json").write_text(json.dumps(errors[-2:]), encoding="utf-8")
    alone = [job("changing", 4, resume=True), job("alone")]
    assert train_in_group(1, alone, folder / "one") == [[""]] * 2
    assert train_in_group(2, [job("changing", resume=True)], folder / "two_again") == [["", ""]]
    return folder


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_resumed_run_of_two_processes_is_bit_identical(resumed: Path, parallel: str) -> None:
    assert len(bits(resumed / parallel)) == 2
    assert bits(resumed / f"{parallel}_half") == bits(resumed / parallel)


def test_sharded_training_takes_the_steps_of_a_replicated_one(resumed: Path) -> None:
    assert losses(resumed / "fsdp") == pytest.approx(losses(resumed / "ddp_torch"), rel=1e-6)


def test_number_of_processes_may_change_on_resume_and_is_recorded(resumed: Path) -> None:
    events = [json.loads(line) for line in (resumed / "changing" / "metrics.jsonl").read_text("utf-8").splitlines()]
    overrides = [event["overrides"] for event in events if event["event"] == "started"]
    assert overrides == [[], ["processes: 2 → 1"], ["processes: 1 → 2"]]
    state = json.loads((resumed / "changing/checkpoints/step_00000006/training_state/state.json").read_text("utf-8"))
    whole = json.loads((resumed / "ddp/checkpoints/step_00000006/training_state/state.json").read_text("utf-8"))
    assert state["batches"] == whole["batches"]
    assert state["counters"]["target_tokens"] == whole["counters"]["target_tokens"]


def test_dropout_differs_between_the_rows_of_processes(resumed: Path) -> None:
    """With equal seeds, rows of both processes would have the masks of one, and the first loss would be another."""
    assert losses(resumed / "ddp")[0] != pytest.approx(losses(resumed / "alone")[0], rel=1e-7)


def test_differing_settings_are_one_error_that_names_both(resumed: Path) -> None:
    differing, other_data = json.loads((resumed / "errors.json").read_text(encoding="utf-8"))
    fault = "train.seed is 1 in process 0, but 2 in process 1; start every process with the same configuration"
    assert differing[0].startswith(f"ConfigError: {fault}")
    assert differing[1].startswith(f"FailedElsewhereError: {fault}")
    assert other_data[0].startswith("ConfigError: data.train is [")


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("size", [2, 3])
def test_shares_of_a_batch_are_its_rows_once_each(
    tmp_path_factory: pytest.TempPathFactory, size: int, task: str
) -> None:
    batch = make_task(parse_config(values_of(tmp_path_factory, task))).batches.next()
    shares = [World(rank, size).share_of(batch) for rank in range(size)]
    assert all(counts for _, counts in shares)
    assert sum(share.n_rows for share, _ in shares) == batch.n_rows
    assert sum(share.n_targets for share, _ in shares) == batch.n_targets
    assert sum(share.source_tokens for share, _ in shares) == batch.source_tokens
    first = next(field.name for field in fields(batch))
    for rank, (share, _) in enumerate(shares):
        assert getattr(share, first).equal(getattr(batch, first)[rank::size])


def test_process_without_a_row_takes_part_and_does_not_count(tmp_path_factory: pytest.TempPathFactory) -> None:
    batch = make_task(parse_config(values_of(tmp_path_factory, "images"))).batches.next().select([3])
    assert [World(rank, 3).share_of(batch)[1] for rank in range(3)] == [True, False, False]
    assert World(2, 3).share_of(batch)[0].n_rows == 1


def after_signal(config: Path, run: Path, number: signal.Signals) -> tuple[int, str]:
    """Exit code and messages of a training by two processes, one of which gets a signal after three steps."""
    command = ["train", config, "--run", run, "--processes", 2]
    with own_process.started(*command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("step 3/"):
                break
        children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True)
        os.kill(int(children.stdout.split()[-1]), number)
        text = process.stderr.read()
        return process.wait(timeout=120), text


@pytest.fixture
def endless(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tiny = tiny_run.made(tmp_path_factory)
    return tiny.write_config(tmp_path / "endless.toml", {"train.max_steps": 100000, "train.log_every": 1})


def test_signal_to_one_process_saves_once_and_stops_all(tmp_path: Path, endless: Path) -> None:
    code, text = after_signal(endless, tmp_path / "run", signal.SIGTERM)
    assert code == 143, text
    [checkpoint] = (tmp_path / "run" / "checkpoints").glob("step_*")
    assert f"step {step_of(checkpoint):,}: asked to stop; --resume goes on from here" in text


def test_killed_process_ends_the_training_without_a_traceback(tmp_path: Path, endless: Path) -> None:
    code, text = after_signal(endless, tmp_path / "run", signal.SIGKILL)
    assert code != 0
    assert "Traceback" not in text, text
    errors = [line for line in text.splitlines() if "error" in line]
    assert errors
    assert all(line.endswith("continue with --resume") for line in errors)
