"""Endless input and special files: one-line errors in bounded memory."""

import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from glassformer.storage.run_folder import resolve
from own_process import started
from tiny_run import TinyRun

Refused = Callable[..., str]
GIGABYTE = 1 << 30


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
@pytest.mark.parametrize("name", ["-", "/dev/zero"])
def test_tokenize_refuses_an_endless_line_in_bounded_memory(tiny: TinyRun, name: str) -> None:
    with (
        Path("/dev/zero").open("rb") as zeros,
        started(
            "tokenize", resolve(tiny.run), name, stdin=zeros, stderr=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process,
    ):
        resource.prlimit(process.pid, resource.RLIMIT_DATA, (GIGABYTE, GIGABYTE))
        out, err = process.communicate(timeout=300)
    shown = "standard input" if name == "-" else name
    told = f"{shown}, line 1: has more than 10,000,000 bytes; break the line, or raise --max-line-bytes"
    assert (process.returncode, out) == (2, "")
    assert err == f"glassformer: error: {told}\n"


def test_a_command_waiting_for_input_ends_on_ctrl_c(tiny: TinyRun) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started("tokenize", resolve(tiny.run), **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("a dog\n" * 20_000)  # enough to flush some output, which proves that the model is loaded
        process.stdin.flush()
        assert process.stdout.read(1)
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=300) == 130


@pytest.mark.parametrize("verb", ["translate", "tokenize"])
def test_max_line_bytes_sets_the_line_limit(
    refused: Refused, cli: Callable[..., object], tiny: TinyRun, verb: str
) -> None:
    line = refused(verb, tiny.run, "--max-line-bytes", 5, stdin="a dog runs.\n")
    assert line == "standard input, line 1: has more than 5 bytes; break the line, or raise --max-line-bytes"
    assert refused(verb, tiny.run, "--max-line-bytes", 0).startswith("Invalid value for '--max-line-bytes'")


def test_train_refuses_a_pipe_as_configuration(refused: Refused, cli: Callable[..., object], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.toml")
    line = refused("train", tmp_path / "run.toml")
    assert line == f"{tmp_path}/run.toml: is a pipe, not a regular file; name a configuration file in TOML"
    assert refused("train", "/dev/null") == (
        "/dev/null: is a device, not a regular file; name a configuration file in TOML"
    )


def test_tokenize_reads_a_named_pipe(cli: Callable[..., object], tiny: TinyRun, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "text")
    with started("tokenize", resolve(tiny.run), tmp_path / "text", stdout=subprocess.PIPE) as process:
        (tmp_path / "text").write_text("a dog\n")
        assert process.communicate(timeout=300)[0]
        assert process.returncode == 0
