"""Checkpoints of interruptions serve only to resume."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import glassformer.train.loop
from glassformer.cli import main
from glassformer.storage.checkpoint import LARGEST
from glassformer.storage.run_folder import RunFolder, training_values
from glassformer.train import train
from tiny_run import TinyRun, run_to_the_end, state_of

SETTINGS = {
    "train.max_steps": 12,
    "train.save_every": 4,
    "train.keep_checkpoints": 2,
    "model.dropout": 0.2,
    "data.validation": [],
}


def stopped_after(steps: int) -> Callable[[], bool]:
    """``should_stop`` that is true from step ``steps`` of this process on."""
    left = iter([False] * (steps - 1))
    return lambda: next(left, True)


def train_until(tiny: TinyRun, path: Path, *stops: int, **changes: Any) -> None:
    """Start a run and stop it, as Ctrl-C does, at each of the steps ``stops``."""
    config, before = tiny.config(SETTINGS | changes), 0
    for stop in stops:
        run = RunFolder.open(path) if before else RunFolder.create(path)
        *_, finished = train(config, run, resume=before > 0, should_stop=stopped_after(stop - before))
        assert finished.step == stop
        before = stop


def names(path: Path) -> list[str]:
    return [checkpoint.name for checkpoint in RunFolder.open(path).checkpoints()]


def test_interruptions_do_not_displace_scheduled_checkpoints(tiny: TinyRun, tmp_path: Path) -> None:
    train_until(tiny, tmp_path / "run", 9, 10, 11)
    assert names(tmp_path / "run") == ["step_00000004", "step_00000008", "step_00000011"]


def test_interrupted_run_ends_like_an_undisturbed_run(tiny: TinyRun, tmp_path: Path) -> None:
    """Checkpoints, weights and training state are equal."""
    run_to_the_end(tiny.config(SETTINGS), tmp_path / "undisturbed")
    train_until(tiny, tmp_path / "run", 3, 4, 7)
    run_to_the_end(tiny.config(SETTINGS), tmp_path / "run", resume=True)
    interrupted, undisturbed = state_of(tmp_path / "run"), state_of(tmp_path / "undisturbed")
    assert interrupted.pop("metrics")
    assert undisturbed.pop("metrics")
    assert interrupted == undisturbed
    assert interrupted["checkpoints"] == ["step_00000008", "step_00000012"]


def test_max_seconds_between_saves_counts_as_interruption(tiny: TinyRun, tmp_path: Path) -> None:
    run_to_the_end(tiny.config(SETTINGS | {"train.max_seconds": 1e-6}), tmp_path / "run")
    run = RunFolder.open(tmp_path / "run")
    assert names(run.path) == ["step_00000001"]
    assert run.scheduled() == []
    run_to_the_end(tiny.config(SETTINGS | {"train.max_steps": 4}), run.path, resume=True)
    assert names(run.path) == ["step_00000004"]


@pytest.mark.parametrize("kind", ["link out of the folder", "pipe", "too large"])
def test_unsuitable_training_values_are_not_read(
    tiny: TinyRun, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_to_the_end(tiny.config(SETTINGS | {"train.max_seconds": 1e-6}), tmp_path / "run")
    run = RunFolder.open(tmp_path / "run")
    (checkpoint,) = run.checkpoints()
    values = checkpoint / "training_state" / "state.json"
    if kind == "too large":
        monkeypatch.setitem(LARGEST, "training_state/state.json", 10)
    else:
        values.rename(tmp_path / "state.json")
        os.mkfifo(values) if kind == "pipe" else values.symlink_to(tmp_path / "state.json")
    assert training_values(checkpoint) == {}
    assert run.scheduled() == [checkpoint]


@pytest.mark.parametrize("changes", [{"train.max_steps": 3}, {"train.max_steps": 4, "train.max_seconds": 1e6}])
def test_last_step_is_not_an_interruption(tiny: TinyRun, tmp_path: Path, changes: dict[str, Any]) -> None:
    run_to_the_end(tiny.config(SETTINGS | changes), tmp_path / "run")
    run = RunFolder.open(tmp_path / "run")
    assert run.scheduled() == run.checkpoints()


def test_stop_at_a_scheduled_save_or_validation_is_scheduled(tiny: TinyRun, tmp_path: Path) -> None:
    train_until(tiny, tmp_path / "saved", 4)
    assert len(RunFolder.open(tmp_path / "saved").scheduled()) == 1
    validation = {"data.validation": [str(tiny.folder / "validation")], "validation.every": 3}
    train_until(tiny, tmp_path / "validated", 3, **validation)
    assert len(RunFolder.open(tmp_path / "validated").scheduled()) == 1


def test_best_checkpoint_of_an_interruption_is_kept(
    tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time limit validates too, so it may save the best checkpoint."""
    values = [30.0, 10.0, 20.0, 40.0]
    monkeypatch.setattr(
        glassformer.train.loop, "without_dropout", lambda *_: {"nll": 1.0, "bleu": values.pop(0), "chrf": 0.0}
    )
    settings = SETTINGS | {"data.validation": [str(tiny.folder / "validation")], "validation.every": 4}
    run_to_the_end(tiny.config(settings | {"train.max_seconds": 1e-6}), tmp_path / "run")
    run_to_the_end(tiny.config(settings | {"train.max_steps": 8}), tmp_path / "run", resume=True)
    assert names(tmp_path / "run") == ["step_00000001", "step_00000004", "step_00000008"]
    run_to_the_end(tiny.config(settings), tmp_path / "run", resume=True)
    assert names(tmp_path / "run") == ["step_00000008", "step_00000012"]


def average(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr("sys.argv", ["glassformer", "average", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code


def test_average_omits_checkpoints_of_interruptions(
    tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train_until(tiny, tmp_path / "run", 9)
    average(monkeypatch, tmp_path / "run", "-n", "2")
    assert capsys.readouterr().err.splitlines() == [
        "left out step_00000009: saved when training was interrupted, not on schedule",
        "averaged step_00000004, step_00000008",
    ]


def test_average_uses_interruptions_without_scheduled_checkpoints(
    tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train_until(tiny, tmp_path / "run", 2)
    average(monkeypatch, tmp_path / "run")
    assert capsys.readouterr().err == "averaged step_00000002\n"
