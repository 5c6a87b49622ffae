"""Ctrl-C comes once, not in the middle of an import or of loading, and ends a command silently with 130."""

import signal
import subprocess
import threading
from pathlib import Path

import pytest

from glassformer.cli.process import interrupt_where_it_can_be
from own_process import running, started
from tiny_run import TinyRun

INTERRUPTED = """
import os, signal, sys
exec("os.kill(os.getpid(), signal.SIGINT)\\nfor _ in range(100_000): pass")
sys.path.remove(os.getcwd())
del sys.modules["torch"]
import torch
"""


def test_an_import_is_not_left_in_the_middle(tiny: TinyRun, tmp_path: Path) -> None:
    """Ctrl-C while torch is imported, in code that Python makes for it, which would remember an exception."""
    (tmp_path / "torch.py").write_text(INTERRUPTED)
    with started("translate", tiny.run, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.wait(timeout=300) == 130
        assert process.stderr.read() == ""


WAITS = """
import os, signal, sys, time
from glassformer.cli import app, main, process, train
from glassformer.errors import DataError

def interrupted_while_loading():
    with process.loading():
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000): pass

def ends():
    interrupted_while_loading()

def fails():
    interrupted_while_loading()
    raise DataError("no such text")

def twice():
    interrupted_while_loading()
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
    finally:
        time.sleep(0.2)
        print("cleaned up", file=sys.stderr, flush=True)

def saves():
    interrupted_while_loading()
    with train.signals() as caught:
        time.sleep(0.2)
    print(caught == [signal.SIGINT], file=sys.stderr, flush=True)

class Swallowing:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000): pass

def swallowed():
    sys.unraisablehook = lambda lost: print(f"lost {lost.exc_type.__name__}", file=sys.stderr, flush=True)
    Swallowing()
    raise DataError("no such text")

for verb in (ends, fails, twice, saves, swallowed):
    app.app.command(name=verb.__name__)(verb)
main()
"""


@pytest.mark.parametrize(
    ("verb", "code", "told"),
    [
        ("ends", 130, ""),
        ("fails", 130, "glassformer: error: no such text\n"),
        ("twice", 130, "cleaned up\n"),
        ("swallowed", 130, "lost KeyboardInterrupt\nglassformer: error: no such text\n"),
        ("saves", 0, "saving after this step; once more to stop at once\nTrue\n"),
    ],
)
def test_ctrl_c_that_has_waited(verb: str, code: int, told: str) -> None:
    """Until the command ends, or is pressed again, or is heard by training, which would save."""
    with running("-c", WAITS, verb, stderr=subprocess.PIPE) as process:
        _, said = process.communicate(timeout=300)
    assert (process.returncode, said) == (code, told)


AT_AN_IMPORT = """
import os, signal, sys
moment = sys.argv.pop(1)

class Interrupting:
    def find_spec(self, name, *rest):
        if name == moment:
            print("interrupted", flush=True)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from glassformer.cli import main
main()
"""


@pytest.mark.parametrize(
    "moment",
    [
        "glassformer.cli.process",
        "glassformer.cli.app",
        "typer",
        "glassformer.cli.align",
        "glassformer.cli.walkthrough",
        "glassformer.config",
    ],
)
def test_ctrl_c_during_startup_ends_the_command(moment: str) -> None:
    """From the first import of ``main``, before the handler is installed, to the first import of a command."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with running("-c", AT_AN_IMPORT, moment, "train", "nowhere.toml", **pipes) as process:
        out, err = process.communicate(timeout=300)
    assert out == "interrupted\n"
    assert process.returncode == 130
    assert err in ("", "glassformer: error: nowhere.toml: no such file; name a configuration file in TOML\n")


def test_few_modules_are_imported_before_the_ctrl_c_handler() -> None:
    script = """
import sys
before = set(sys.modules)
import glassformer.cli
print(*sorted(set(sys.modules) - before))
"""
    with running("-S", "-c", script, stdout=subprocess.PIPE) as process:
        found, _ = process.communicate(timeout=300)
    ours = {"glassformer", "glassformer.cli", "glassformer.lazy_imports"}
    assert ours <= set(found.split())
    assert set(found.split()) - ours <= {
        "importlib",
        "importlib._bootstrap",
        "importlib._bootstrap_external",
        "warnings",
    }


def test_ctrl_c_after_a_command_has_ended() -> None:
    script = """
import atexit, os, signal, sys
from glassformer.cli import main
atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT) or [None for _ in range(1000)])
sys.argv[1:] = ["--version"]
main()
"""
    with running("-c", script, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        out, err = process.communicate(timeout=300)
    assert out.startswith("glassformer ")
    assert (process.returncode, err) == (130, "")


def test_only_the_main_thread_decides_what_ctrl_c_does() -> None:
    before, faults = signal.getsignal(signal.SIGINT), []

    def elsewhere() -> None:
        try:
            interrupt_where_it_can_be()
        except ValueError as fault:
            faults.append(fault)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert not faults
    assert signal.getsignal(signal.SIGINT) is before
