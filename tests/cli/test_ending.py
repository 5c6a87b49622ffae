"""However a command ends, nothing half-written is left, and what could not be written is told."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glassformer.storage.run_folder import RunFolder
from own_process import running, started
from tiny_run import TinyRun

Refused = Callable[..., str]
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")


@pytest.mark.parametrize(
    ("kind", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP), (signal.SIGINT, 130)]
)
def test_a_translation_that_is_ended_leaves_no_file(
    tiny: TinyRun, tmp_path: Path, kind: signal.Signals, code: int
) -> None:
    """It waits for more of stdin; the file that it has begun is there until it is ended."""
    (tmp_path / "out").write_text("before\n")
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started("translate", tiny.run, "-o", tmp_path / "out", **pipes) as process:
        until = time.monotonic() + 300
        while not (tmp_path / "out.part").exists() and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(kind)
        assert process.wait(timeout=300) == code
    assert [item.name for item in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_text() == "before\n"


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    ("kinds", "code"),
    [
        ([signal.SIGTERM], -signal.SIGTERM),
        ([signal.SIGHUP], -signal.SIGHUP),
        ([signal.SIGINT], 130),
        ([signal.SIGINT, signal.SIGTERM], -signal.SIGTERM),
    ],
)
def test_a_signal_while_the_output_begins_leaves_no_file(
    tiny: TinyRun, tmp_path: Path, kinds: list[signal.Signals], code: int, restart: bool
) -> None:
    """The signals arrive between the creation of the part, or its truncation, and that of its journal."""
    if restart:
        (tmp_path / "out.part").write_text("before\n")
        (tmp_path / "out.part.journal").write_text("before\n")
    options = ["--restart"] * restart
    program = f"""
import os, sys
from glassformer.cli.app import main
from glassformer.storage import part_file
part_file.sync = lambda path: [os.kill(os.getpid(), kind) for kind in {[int(kind) for kind in kinds]}]
sys.argv[1:] = ["translate", {str(tiny.run)!r}, "-o", {str(tmp_path / "out")!r}, *{options}]
main()
"""
    with running("-c", program, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.wait(timeout=300) == code
    assert list(tmp_path.iterdir()) == []


@needs_full
@pytest.mark.parametrize("verb", ["translate", "info", "--version"])
def test_a_full_disk_behind_stdout_is_told_once(tiny: TinyRun, verb: str) -> None:
    arguments = [] if verb == "--version" else [tiny.run]
    with (
        FULL.open("w") as full,
        started(verb, *arguments, stdin=subprocess.PIPE, stdout=full, stderr=subprocess.PIPE) as process,
    ):
        _, told = process.communicate("the cat\n")
    assert told == (
        "glassformer: error: standard output: cannot be written (No space left on device); "
        "free some space or name another file\n"
    )
    assert process.returncode == 2


@needs_full
def test_a_full_disk_behind_a_file_is_told(refused: Refused, tiny: TinyRun) -> None:
    told = "/dev/full: cannot be written (No space left on device); free some space or name another file"
    assert refused("translate", tiny.run, "-o", FULL, stdin="the cat\n") == told


def test_text_that_fails_is_not_blamed_on_the_output(refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    line = refused("translate", tiny.run, tmp_path, "-o", tmp_path / "out")
    assert line == f"{tmp_path}: cannot be read (Is a directory); choose a readable file"


@pytest.mark.parametrize("lines", [0, 2])
def test_training_goes_on_when_nobody_listens(tiny: TinyRun, tmp_path: Path, lines: int) -> None:
    """``glassformer train … 2>&1 | head``: it ends as it would have, and says nothing about it."""
    config = tiny.write_config(tmp_path / "tiny.toml", {"train.max_steps": 12, "train.log_every": 1})
    with started("train", config, "--run", tmp_path / "run", stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        for _ in range(lines):
            process.stderr.readline()
        process.stderr.close()
        assert process.wait(timeout=300) == 0
    run = RunFolder.open(tmp_path / "run")
    assert run.checkpoints()[-1].name == "step_00000012"
    assert run.metrics()[-1]["event"] == "finished"


def test_a_closed_terminal_saves(tiny: TinyRun, tmp_path: Path) -> None:
    config = tiny.write_config(tmp_path / "tiny.toml", {"train.max_steps": 100_000, "data.validation": []})
    with started("train", config, "--run", tmp_path / "run", stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith("step "):
            pass
        process.stderr.close()
        process.send_signal(signal.SIGHUP)
        assert process.wait(timeout=300) == 128 + signal.SIGHUP
    last = RunFolder.open(tmp_path / "run").metrics()[-1]
    assert "asked to stop" in last["reason"]
    assert RunFolder.open(tmp_path / "run").checkpoints()[-1].name == f"step_{last['step']:08d}"


# A start that comes to no checkpoint


def diverging(tiny: TinyRun, path: Path) -> Path:
    """Its second step is not finite."""
    return tiny.write_config(path, {"optimizer.learning_rate": 1e38, "train.max_bad_steps": 0})


def test_after_a_failed_start_the_same_command_works(cli: Any, tiny: TinyRun, tmp_path: Path) -> None:
    config, run = diverging(tiny, tmp_path / "tiny.toml"), tmp_path / "run"
    for _ in range(2):
        result = cli("train", config, "--run", run)
        assert result.code == 2
        assert f"the batch in {run}/bad_batch.json" in result.err
        assert {item.name for item in run.iterdir()} == {"bad_batch.json", "lock"}
    (run / "bad_batch.json").unlink()
    assert cli("train", config, "optimizer.learning_rate=0.01", "train.max_steps=1", "--run", run).code == 0
    assert len(RunFolder.open(run).checkpoints()) == 1


def test_a_start_that_was_killed_is_made_again(cli: Any, tiny: TinyRun, tmp_path: Path) -> None:
    config, run = tiny.write_config(tmp_path / "tiny.toml", {"train.max_steps": 1}), tmp_path / "run"
    (run / "checkpoints" / ".tmp-step_00000001-9-ab").mkdir(parents=True)
    for name in ("lock", "config.toml", "notes.txt"):
        (run / name).write_text("killed\n")
    (run / "metrics.jsonl").write_text('{"event": "progress", "step": 7}\n')
    assert cli("train", config, "--run", run).code == 0
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step_00000001"]
    assert all(line["step"] < 2 for line in RunFolder.open(run).metrics())
    assert (run / "notes.txt").read_text() == "killed\n"


def test_a_failed_start_removes_only_what_it_made(refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    config = tiny.write_config(tmp_path / "tiny.toml", {"data.train": ["/nowhere/train"]})
    (tmp_path / "empty").mkdir()
    refused("train", config, "--run", tmp_path / "empty")
    assert list((tmp_path / "empty").iterdir()) == []
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "config.toml").write_text("# mine\n")
    assert "holds a run already" in refused("train", config, "--run", tmp_path / "own")
    assert (tmp_path / "own" / "config.toml").read_text() == "# mine\n"
    before = sorted(tiny.run.rglob("*"))
    refused("train", config, "--resume", "--run", tiny.run)
    assert sorted(tiny.run.rglob("*")) == before
