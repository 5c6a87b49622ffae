"""A job of a scheduler that is started again continues its run; any other job is refused as without a scheduler."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glassformer.cli.jobs import job_id
from tiny_run import TinyRun, state_of

VARIABLES = ["SLURM_JOB_ID", "KUBERNETES_JOB_NAME", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"]
Train = Callable[..., str]


@pytest.fixture(autouse=True)
def without_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("variables", "job"),
    [
        ({}, None),
        ({"TORCHELASTIC_RUN_ID": "none"}, None),
        ({"TORCHELASTIC_RUN_ID": "glassformer-123", "GLASSFORMER_STORE": "/tmp/workers"}, None),
        ({"TORCHELASTIC_RUN_ID": "glassformer-big"}, "torchrun job glassformer-big"),
        ({"TORCHELASTIC_RUN_ID": "night"}, "torchrun job night"),
        ({"TORCHELASTIC_RUN_ID": "9b2d", "SLURM_JOB_ID": "17"}, "SLURM job 17"),
        ({"KUBERNETES_JOB_NAME": "night", "TORCHELASTIC_RUN_ID": "9b2d"}, "Kubernetes job night"),
    ],
)
def test_scheduler_names_the_job(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], job: str | None) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert job_id() == job


@pytest.fixture
def train(tiny: TinyRun, tmp_path: Path, cli: Any) -> Callable[..., Any]:
    """Train to a number of steps in the folder ``run``."""

    def to(steps: int, *options: str, run: str = "run") -> Any:
        config = tiny.write_config(tmp_path / "tiny.toml", {"data.validation": [], "model.dropout": 0.2})
        return cli("train", config, "--run", tmp_path / run, f"train.max_steps={steps}", *options)

    return to


def test_same_job_resumes_and_another_is_refused(
    monkeypatch: pytest.MonkeyPatch, train: Any, refused: Any, tiny: TinyRun, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert "resuming" not in train(3).err
    assert f"resuming {tmp_path / 'run'}: SLURM job 17 began it\n" in train(6).err
    train(6, run="undisturbed")
    resumed, undisturbed = (state_of(tmp_path / name) for name in ("run", "undisturbed"))
    assert resumed["weights"] == undisturbed["weights"]
    for other in ("18", ""):
        monkeypatch.setenv("SLURM_JOB_ID", other)
        message = refused("train", tmp_path / "tiny.toml", "--run", tmp_path / "run")
        assert message == f"{tmp_path / 'run'}: holds a run already; go on with --resume, or name another with --run"
    monkeypatch.setenv("SLURM_JOB_ID", "18")
    train(7, "--resume")
    assert "SLURM job 18 began it" in train(8).err


def test_restart_resumes_only_what_its_torchrun_began(
    monkeypatch: pytest.MonkeyPatch, train: Any, refused: Any, tmp_path: Path
) -> None:
    train(1, run="other")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    train(1)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert "torchrun process" in train(2).err
    assert "holds a run already" in refused("train", tmp_path / "tiny.toml", "--run", tmp_path / "other")
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT")
    train(3, "--resume")
    assert not (tmp_path / "run" / "job.json").exists()


def test_damaged_record_of_a_job_counts_as_another(
    monkeypatch: pytest.MonkeyPatch, train: Any, refused: Any, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    train(1)
    record = tmp_path / "run" / "job.json"
    record.write_bytes(record.read_bytes().replace(b"17", b"71"))
    monkeypatch.setenv("SLURM_JOB_ID", "71")
    assert "holds a run already" in refused("train", tmp_path / "tiny.toml", "--run", tmp_path / "run")
