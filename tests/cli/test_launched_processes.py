"""Processes of one training on this machine: how they end, and what they print."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from unittest import mock

import pytest
import torch.distributed as dist

import own_process
import tiny_run
from glassformer.cli import processes
from glassformer.errors import ConfigError
from glassformer.storage.run_folder import RunFolder
from glassformer.train.distributed import FailedElsewhereError, is_lost_connection
from glassformer.train.peers import ProcessLostError, reason

SLOW_FIRST_PROCESS = """
import os
if os.environ.get("RANK") == "0":
    import pathlib, time
    from glassformer.storage.run_folder import RunFolder
    discard = RunFolder.discard
    def slow(run):
        time.sleep(2)
        pathlib.Path(__file__).with_name("waited").touch()
        discard(run)
    RunFolder.discard = slow
"""


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


def open_files(process: int) -> list[str]:
    """What the file descriptors of a process refer to."""
    names = []
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            names.append(os.readlink(descriptor))
    return names


@pytest.mark.parametrize("n", [1, 2])
def test_only_a_training_of_several_processes_opens_sockets(tmp_path: Path, endless: Path, n: int) -> None:
    command = ["train", endless, "--run", tmp_path / "run", "--processes", n]
    with own_process.started(*command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith("step 3/"):
            pass
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        names = [name for each in (process.pid, *map(int, children)) for name in open_files(each)]
        process.terminate()
        process.stderr.read()
    assert str(tmp_path / "run" / "lock") in names
    assert any(name.startswith("socket:") for name in names) == (n > 1)


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


@contextmanager
def worker(rank: int, size: int, port: int, *arguments: object) -> Iterator["subprocess.Popen[str]"]:
    """One process of a training as torchrun starts it; killed at the end of the block if it has not ended."""
    variables = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "none"}
    environment = {name: str(value) for name, value in variables.items()} | {"GLOO_SOCKET_IFNAME": "lo"}
    with mock.patch.dict(own_process.ENVIRONMENT, environment):
        process = own_process.started("train", *arguments, stderr=subprocess.PIPE)
    with process:
        yield process
        process.kill()


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]  # type: ignore[no-any-return]


@pytest.mark.parametrize("in_use", [False, True])
def test_processes_that_do_not_meet_end_after_the_time_limit(tmp_path: Path, endless: Path, in_use: bool) -> None:
    port = free_port()
    with ExitStack() as stack:
        if in_use:
            server = stack.enter_context(socket.create_server(("127.0.0.1", port)))
            assert server.getsockname()[1] == port
        process = stack.enter_context(
            worker(0, 2, port, endless, "--run", tmp_path / "run", "train.wait_seconds=2", "--processes", 2)
        )
        _, messages = process.communicate(timeout=120)
    reason = "The server socket has failed to listen.*" if in_use else "Timed out after . seconds waiting for clients"
    assert process.returncode == 2
    assert re.fullmatch(
        rf"glassformer: error: process 0 of 2: cannot meet the others at 127\.0\.0\.1, port {port}, within "
        rf"train\.wait_seconds=2 \({reason}\); start all of them, and see that .*\n",
        messages,
    )


def test_error_in_the_configuration_is_one_line_of_the_first_process(tmp_path: Path, endless: Path) -> None:
    """Also if only another process has it."""
    for wrong in ([0, 1], [1]):
        port = free_port()
        with ExitStack() as stack:
            settings = [["train.max_step=3"] if rank in wrong else [] for rank in range(2)]
            processes = [
                stack.enter_context(worker(rank, 2, port, endless, "--run", tmp_path / "run", *settings[rank]))
                for rank in range(2)
            ]
            first, second = (process.communicate(timeout=120)[1] for process in processes)
        assert [process.returncode for process in processes] == [2, 2]
        where = "" if 0 in wrong else "process 1: "
        fault = "'train.max_step=3': unknown key train.max_step; did you mean train.max_steps?"
        assert first == f"glassformer: error: {where}{fault}\n"
        assert second == ""
    assert not (tmp_path / "run").exists()


def test_error_is_printed_also_if_the_first_process_ends_last(tmp_path: Path, endless: Path) -> None:
    """The launcher ends all processes soon after the first one of them that ended."""
    (tmp_path / "sitecustomize.py").write_text(SLOW_FIRST_PROCESS, encoding="utf-8")
    path = f"{tmp_path}{os.pathsep}{own_process.ENVIRONMENT['PYTHONPATH']}"
    missing = f'data.train=["{tmp_path / "missing"}"]'
    with mock.patch.dict(own_process.ENVIRONMENT, PYTHONPATH=path):
        process = own_process.started(
            "train", endless, "--run", tmp_path / "run", "--processes", 2, missing, stderr=subprocess.PIPE
        )
    _, messages = process.communicate(timeout=120)
    assert process.returncode == 2
    assert re.fullmatch(rf"glassformer: error: {tmp_path}/missing\.en: .*\n", messages)
    assert (tmp_path / "waited").exists()
    assert not (tmp_path / "run").exists()


def test_error_that_all_processes_find_is_one_line_of_the_first(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tiny, port = tiny_run.made(tmp_path_factory), free_port()
    config, run = tiny.write_config(tmp_path / "tiny.toml"), shutil.copytree(tiny.run, tmp_path / "run")
    arguments = (config, "--run", run, "--resume", "optimizer.learning_rate=0.02")
    with ExitStack() as stack:
        processes = [stack.enter_context(worker(rank, 2, port, *arguments)) for rank in range(2)]
        first, second = (process.communicate(timeout=120)[1] for process in processes)
    assert [process.returncode for process in processes] == [2, 2]
    fault = "optimizer.learning_rate=0.02, but the run began with 0.01; resume with 0.01, "
    assert re.fullmatch(f"glassformer: error: {fault}.*\n", first)
    assert second == ""


@pytest.mark.parametrize(
    ("kind", "printed", "expected"),
    [
        (ConfigError, "this one", ""),
        (ConfigError, "another", "glassformer: error: this one\n"),
        (ConfigError, None, "glassformer: error: this one\n"),
        (FailedElsewhereError, "this one", ""),
        (FailedElsewhereError, None, ""),
        (ProcessLostError, "this one", "glassformer: error: this one\n"),
    ],
)
def test_other_processes_print_only_what_the_first_does_not(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: type[Exception],
    printed: str | None,
    expected: str,
) -> None:
    store = dist.HashStore()
    if printed is not None:
        store.set(processes.PRINTED, printed)
    monkeypatch.setattr(processes, "_store", lambda: store)
    monkeypatch.setattr(processes, "PRINT_SECONDS", 60.0 if printed else 0.1)
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}.items():
        monkeypatch.setenv(name, value)
    processes.print_once(kind("this one"), "this one")
    assert capsys.readouterr().err == expected
    assert store.check([f"{processes.HEARD}1"]) == (printed is not None and kind is not ProcessLostError)


def test_survivors_of_a_killed_process_name_it(tmp_path: Path, endless: Path) -> None:
    port, arguments = free_port(), (endless, "--run", tmp_path / "run", "train.wait_seconds=60", "train.threads=1")
    with ExitStack() as stack:
        first, second, third = (stack.enter_context(worker(rank, 3, port, *arguments)) for rank in range(3))
        assert first.stderr is not None
        assert any(line.startswith("step 3/") for line in first.stderr)
        third.kill()
        messages = [process.communicate(timeout=60)[1].splitlines() for process in (first, second)]
    assert [process.returncode for process in (first, second)] == [2, 2]
    for rank, lines in enumerate(messages):
        errors = [line for line in lines if not line.startswith("step ")]
        lost = f"process 2 on {socket.gethostname()} has ended, or cannot be reached"
        assert len(errors) == 1, errors
        assert errors[0].startswith(f"glassformer: error: process {rank} of 3: {lost} (")
        assert errors[0].endswith("; see the messages of the others, and continue with --resume")


@pytest.mark.parametrize(
    "message",
    [
        "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:4040. This is",
        "[/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 1800000ms for recv operation to complete",
        "Application timeout caused pair closure",
        "NCCL communicator was aborted on rank 1",
    ],
)
def test_errors_of_communication_are_recognized(message: str) -> None:
    assert is_lost_connection(RuntimeError(message))
    assert not is_lost_connection(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert reason(RuntimeError(message)) in message
