"""``train.override_on_resume``: resume with another rate or schedule, and record the change."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from glassformer.cli import main
from glassformer.errors import CheckpointError, ConfigError
from glassformer.storage.checkpoint import fingerprint, load_checkpoint
from glassformer.storage.run_folder import RunFolder
from glassformer.train import Started
from tiny_run import TinyRun, run_to_the_end

SETTINGS = {"train.max_steps": 4, "data.validation": [], "train.save_every": 2}
LONGER = SETTINGS | {"train.max_steps": 6}
ALLOWED = LONGER | {"train.override_on_resume": True}


@pytest.fixture
def run(tiny: TinyRun, tmp_path: Path) -> Path:
    """A run of four steps."""
    run_to_the_end(tiny.config(SETTINGS), tmp_path / "run")
    return tmp_path / "run"


def resume(tiny: TinyRun, run: Path, changes: dict[str, Any]) -> Started:
    started, *_ = run_to_the_end(tiny.config(changes), run, resume=True)
    assert isinstance(started, Started)
    return started


def weights(run: Path) -> str:
    return fingerprint(load_checkpoint(RunFolder.open(run).checkpoints()[-1]).weights)


def history(run: Path) -> list[Any]:
    checkpoint = load_checkpoint(RunFolder.open(run).checkpoints()[-1], training=True)
    assert checkpoint.training is not None
    return list(checkpoint.training.values["overrides"])


def test_resume_refuses_a_changed_setting_and_names_override_on_resume(tiny: TinyRun, run: Path) -> None:
    message = (
        "optimizer.learning_rate=0.002, but the run began with 0.01; resume with 0.01, start a new run, "
        "or set train.override_on_resume=true to change it from here on"
    )
    with pytest.raises(ConfigError, match=re.escape(message) + "$"):
        resume(tiny, run, LONGER | {"optimizer.learning_rate": 0.002})


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer.learning_rate": 0.002},
        {"optimizer.schedule": "cosine"},
        {"optimizer.kind": "adamw", "optimizer.weight_decay": 0.5},
        {"optimizer.betas": (0.5, 0.9)},
        {"train.label_smoothing": 0.0},
        {"train.accumulate": 2},
        {"train.dropout_warmup_steps": 100},
    ],
)
def test_override_on_resume_changes_the_weights_from_its_step(
    tiny: TinyRun, run: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    started = resume(tiny, run, ALLOWED | changes)
    assert started.step == 4
    run_to_the_end(tiny.config(LONGER), tmp_path / "unchanged")
    assert weights(run) != weights(tmp_path / "unchanged")
    assert [(one["step"], one["name"]) for one in history(run)] == [(4, name) for name in sorted(changes)]


def test_override_on_resume_without_changes_preserves_the_run(tiny: TinyRun, run: Path, tmp_path: Path) -> None:
    assert resume(tiny, run, ALLOWED).overrides == []
    run_to_the_end(tiny.config(LONGER), tmp_path / "undisturbed")
    assert weights(run) == weights(tmp_path / "undisturbed")
    assert history(run) == []


def test_overrides_are_recorded_in_metrics_and_checkpoints(tiny: TinyRun, run: Path) -> None:
    first = ALLOWED | {"optimizer.learning_rate": 0.002}
    assert resume(tiny, run, first).overrides == ["optimizer.learning_rate: 0.01 → 0.002"]
    second = first | {"train.max_steps": 8, "optimizer.warmup_steps": 0}
    assert resume(tiny, run, second).overrides == ["optimizer.warmup_steps: 5 → 0"]
    later = second | {"train.max_steps": 10, "train.override_on_resume": False}
    assert resume(tiny, run, later).overrides == []
    assert history(run) == [
        {"step": 4, "name": "optimizer.learning_rate", "before": 0.01, "now": 0.002},
        {"step": 6, "name": "optimizer.warmup_steps", "before": 5, "now": 0},
    ]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["overrides"] for line in lines if line["event"] == "started"] == [
        [],
        ["optimizer.learning_rate: 0.01 → 0.002"],
        ["optimizer.warmup_steps: 5 → 0"],
        [],
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"model.dropout": 0.3},
        {"text.lowercase": True},
        {"data.batch_tokens": 400},
        {"train.seed": 2},
        {"train.ema": 0.9},
        {"train.start_from": "elsewhere"},
    ],
)
def test_override_on_resume_refuses_structural_changes(tiny: TinyRun, run: Path, changes: dict[str, Any]) -> None:
    with pytest.raises((ConfigError, CheckpointError), match=r"but the run began with .*; resume with .*, or start"):
        resume(tiny, run, ALLOWED | changes)


def command(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr("sys.argv", ["glassformer", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code


def test_train_and_info_commands_show_overrides(
    tiny: TinyRun, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny.write_config(tmp_path / "tiny.toml", ALLOWED | {"optimizer.learning_rate": 0.002})
    command(monkeypatch, "train", config, "--run", run, "--resume")
    assert "override from step 4 on: optimizer.learning_rate: 0.01 → 0.002" in capsys.readouterr().err.splitlines()
    command(monkeypatch, "info", run)
    shown = capsys.readouterr().out.splitlines()
    assert "  from step 4 on: optimizer.learning_rate: 0.01 → 0.002" in shown
    command(monkeypatch, "info", run, "--json")
    (override,) = json.loads(capsys.readouterr().out)["overrides"]
    assert override == {"step": 4, "name": "optimizer.learning_rate", "before": 0.01, "now": 0.002}
