"""Processes of one training on this machine: how they end, and what they print."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

import own_process
import tiny_run
from glassformer.storage.run_folder import RunFolder


@pytest.fixture
def endless(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Configuration of a training that does not end by itself; it saves after every step."""
    changes = {"train.max_steps": 100000, "train.save_every": 1, "train.log_every": 1, "data.validation": []}
    return tiny_run.made(tmp_path_factory).write_config(tmp_path / "endless.toml", changes)


def running(process: int) -> bool:
    """True if the process has not ended, not counting one whose parent has yet to read its exit code."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_processes_end_with_their_killed_launcher(tmp_path: Path, endless: Path) -> None:
    command = ["train", endless, "--run", tmp_path / "run", "--processes", 2]
    with own_process.started(*command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("step 3/"):
                break
        found = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True)
        children = [int(number) for number in found.stdout.split()]
        assert len(children) == 2
        process.kill()
        process.wait()
        deadline = time.monotonic() + 60
        while any(map(running, children)) and time.monotonic() < deadline:
            time.sleep(0.05)
        survivors = [child for child in children if running(child)]
        for child in survivors:
            os.kill(child, signal.SIGKILL)
        assert survivors == []
    latest = RunFolder.open(tmp_path / "run").latest()
    assert latest is not None
    assert latest.warnings == []
    assert latest.step >= 2


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("processes", [1, 2])
def test_signal_before_the_first_step_ends_at_once(
    tmp_path: Path, endless: Path, kind: signal.Signals, processes: int
) -> None:
    """The text is so long that reading it takes many times longer than this test."""
    text, run = tmp_path / "text.tsv", tmp_path / "run"
    text.write_text("".join(f"{number} {number * 7919} words\t{number * 104729} mots\n" for number in range(400_000)))
    command = ["train", endless, "--run", run, "--processes", processes, f'data.train=["{text}"]']
    with own_process.started(*command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        while not ((run / "lock").exists() and (run / "lock").read_text()):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        process.send_signal(kind)
        code, messages = process.wait(timeout=60), process.stderr.read()
    assert code in (-kind, 128 + kind)
    assert messages == ""
    assert not list(run.glob("checkpoints/*"))
