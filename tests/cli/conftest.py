"""The command line as a user meets it: what it prints, where, and how it ends."""

import io
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from stored_models import stored

import glassformer.cli.corpus as corpus
import tiny_run
from glassformer.cli import main


class Result(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tiny_run.TinyRun:
    return tiny_run.made(tmp_path_factory)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """``cli("translate", run, "-", stdin="a dog")`` in this process."""

    def run(*arguments: object, stdin: str | bytes = "") -> Result:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "argv", ["glassformer", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        capsys.readouterr()
        handler = signal.getsignal(signal.SIGINT)
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            signal.signal(signal.SIGINT, handler)
        return Result(code, *capsys.readouterr())

    return run


@pytest.fixture
def refused(cli: Cli) -> Callable[..., str]:
    """The one line that says what is wrong: exit code 2, nothing on stdout, no traceback."""

    def run(*arguments: object, stdin: str | bytes = "") -> str:
        result = cli(*arguments, stdin=stdin)
        assert (result.code, result.out) == (2, "")
        (line,) = result.err.splitlines()
        assert line.startswith("glassformer: error: ")
        return line.removeprefix("glassformer: error: ")

    return run


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A corpus is predicted in windows of three lines."""
    monkeypatch.setattr(corpus, "WINDOW_LINES", 3)


@pytest.fixture
def run_of(tiny: tiny_run.TinyRun, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``run_of("tagging")`` is a run of that task, ``run_of("")`` one of translation."""

    def find(task: str) -> Path:
        return stored(tmp_path_factory.mktemp(task), task) if task else tiny.run

    return find
