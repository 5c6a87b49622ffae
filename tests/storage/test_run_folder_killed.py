"""One process at a time trains in a run folder, and whatever kills it, the next one goes on."""

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import glassformer.storage.checkpoint
from example_checkpoint import save_step, weights
from glassformer.errors import CheckpointError
from glassformer.storage.checkpoint import fingerprint, load_checkpoint, verify
from glassformer.storage.run_folder import RunFolder, resolve

SOURCE = Path(glassformer.storage.checkpoint.__file__).parents[2]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "first")


def names(folder: Path) -> list[str]:
    return sorted(item.name for item in folder.iterdir())


@contextmanager
def python(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Another process; what it prints is read from ``stdout``."""
    command = [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


# One process at a time

HOLD = """
import os, sys, time
from glassformer.storage.run_folder import RunFolder
with RunFolder.open(sys.argv[1]).lock():
    if sys.argv[2] == "fork" and os.fork() == 0:
        os.close(1)
        time.sleep(10)  # a worker that outlives its parent for a while
        os._exit(0)
    print("locked", flush=True)
    time.sleep(60)
"""


def when_free(run: RunFolder) -> None:
    """A worker forked a moment ago holds the lock until it first runs, which takes a while on a busy machine."""
    for _ in range(100):
        try:
            with run.lock():
                return
        except CheckpointError:
            time.sleep(0.1)


@pytest.mark.parametrize("workers", ["none", "fork"])
def test_a_second_training_is_refused_until_the_first_is_killed(run: RunFolder, workers: str) -> None:
    with python(HOLD, run.path, workers) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        told = f"first: is being trained by process {process.pid}; wait for it, or name another run with --run$"
        with pytest.raises(CheckpointError, match=told), run.lock():
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        when_free(run)
        with run.lock():
            assert (run.path / "lock").read_text() == f"{os.getpid()}\n"


@pytest.mark.parametrize("deleted", ["deleted", "replaced"])
def test_run_lock_holds_after_its_file_is_deleted(run: RunFolder, deleted: str) -> None:
    with python(HOLD, run.path, "none") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        (run.path / "lock").unlink()
        if deleted == "replaced":
            (run.path / "lock").write_text("1234\n")
        holder = "another process" if deleted == "deleted" else "process 1234"
        for _ in range(2):
            with pytest.raises(CheckpointError, match=f"first: is being trained by {holder}; wait for it"), run.lock():
                pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        when_free(run)


def test_run_lock_uses_the_file_if_folders_cannot_be_locked(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like NFS, where a folder cannot be opened for writing."""
    lock = fcntl.flock

    def of_files(descriptor: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, "Bad file descriptor")
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", of_files)
    with run.lock(), pytest.raises(CheckpointError, match=f"trained by process {os.getpid()};"), run.lock():
        pass


def test_run_lock_refuses_a_folder_replaced_meanwhile(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = fcntl.flock

    def replacing(descriptor: int, operation: int) -> None:
        if not run.path.with_name("moved").exists():
            run.path.rename(run.path.with_name("moved"))
            run.path.mkdir()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", replacing)
    with pytest.raises(CheckpointError, match="was replaced while it was being locked; try again"), run.lock():
        pass


def test_the_lock_is_released_after_an_error_and_not_shared_within_a_process(run: RunFolder) -> None:
    with run.lock(), pytest.raises(CheckpointError, match=f"trained by process {os.getpid()};"), run.lock():
        pass
    with pytest.raises(ZeroDivisionError), run.lock():
        raise ZeroDivisionError
    with run.lock():
        pass


def test_lock_removes_files_of_a_killed_save(run: RunFolder) -> None:
    kept = save_step(run, 1)
    (run.checkpoints_path / ".tmp-step_00000002-99-ab" / "training_state").mkdir(parents=True)
    (run.path / ".tmp-best.json-ab").write_text("{")
    with run.lock():
        assert names(run.checkpoints_path) == [kept.name]
        assert names(run.path) == ["checkpoints", "lock"]


# Killed at any moment

TRAIN = """
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from example_checkpoint import save_step
from glassformer.storage.run_folder import RunFolder

def train(path, kill_at):
    run, calls = RunFolder.create(path), 0
    def deadly(function):
        def call(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)
        return call
    with run.lock():
        for step in (1, 2, 2, 3):
            if step == 2 and kill_at and not calls:
                os.fsync = deadly(lambda descriptor: None)  # only the death of the system would need the real one
                for name in ("rename", "replace", "unlink", "rmdir", "mkdir"):
                    setattr(os, name, deadly(getattr(os, name)))
            run.append_metrics({"step": step})
            path = save_step(run, step)
            run.set_best(path, "step", step)
            run.keep(last=1)
    os._exit(0)

folder, random_kills = Path(sys.argv[2]), int(sys.argv[3])
kill_at = 0
while True:  # at every call in turn that changes the disk
    kill_at += 1
    if (child := os.fork()) == 0:
        train(folder / f"call_{kill_at:03d}", kill_at)
    if os.waitpid(child, 0)[1] == 0:
        break
for k in range(random_kills):
    if (child := os.fork()) == 0:
        train(folder / f"time_{k:03d}", None)
    time.sleep(0.3 * k / random_kills)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
print(kill_at)
"""


def test_a_run_killed_at_any_moment_can_go_on(tmp_path: Path) -> None:
    with python(TRAIN, Path(__file__).parents[1], tmp_path, 20) as process:
        output, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    assert len(list(tmp_path.glob("call_*"))) == int(output) > 40
    for path in sorted(tmp_path.iterdir()):
        if path.name.startswith("time_") and not (path / "checkpoints").is_dir():
            continue  # killed before the run was created
        run = RunFolder.open(path)
        with run.lock():
            latest = run.latest()
            assert all(name.startswith("step_") for name in names(run.checkpoints_path))
            if latest is None:
                assert path.name.startswith("time_")  # killed before the first was whole
                continue
            assert latest.warnings == []
            for checkpoint in run.checkpoints():
                verify(checkpoint)
            loaded = load_checkpoint(latest.path, training=True)
            assert fingerprint(loaded.weights) == fingerprint(weights(latest.step))
            assert loaded.training is not None
            assert loaded.training.values["step"] == latest.step
            load_checkpoint(resolve(path))
