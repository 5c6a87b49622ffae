"""The command line as a user meets it: what it prints, where, and how it ends."""

import io
import signal
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

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
