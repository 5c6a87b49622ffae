"""Progress of a corpus: a bar on a terminal, a line a minute elsewhere, and an account of every line."""

import io
from typing import Any

import pytest

import glassformer.cli.corpus_progress as corpus_progress_module
from glassformer.cli.corpus_progress import Account, corpus_progress
from glassformer.cli.messages import Verbosity, set_verbosity


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Clock of the progress, in seconds; set ``clock[0]``."""
    seconds = [100.0]
    monkeypatch.setattr(corpus_progress_module, "monotonic", lambda: seconds[0])
    return seconds


def test_bar_shows_lines_rate_and_time_left(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    account = Account(lines=1000)  # a continued output
    with corpus_progress(5000, account) as progress:
        (task,) = progress.bar.tasks
        assert (task.completed, task.total) == (1000, 5000)
        clock[0], account.lines = 110.0, 2000
        progress.show()
        (task,) = progress.bar.tasks
        assert (task.completed, task.description) == (2000, "100 lines/s, 0:30 left")


def test_bar_of_a_pipe_has_no_time_left(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    account = Account()
    with corpus_progress(None, account) as progress:
        clock[0], account.lines = 110.0, 50
        progress.show()
        assert progress.bar.tasks[0].description == "5 lines/s"


def test_log_has_a_line_a_minute(capsys: pytest.CaptureFixture[str], clock: list[float]) -> None:
    account = Account()
    with corpus_progress(7200, account) as progress:
        for second in range(1, 151):
            clock[0], account.lines = 100.0 + second, second * 10
            progress.show()
    assert progress.bar is None
    assert capsys.readouterr().err.splitlines() == [
        "600 of 7,200 lines  10 lines/s, 11:00 left",
        "1,200 of 7,200 lines  10 lines/s, 10:00 left",
    ]


@pytest.mark.parametrize("stderr", [io.StringIO, Terminal])
def test_quiet_command_shows_no_progress(monkeypatch: pytest.MonkeyPatch, clock: list[float], stderr: Any) -> None:
    stream = stderr()
    monkeypatch.setattr("sys.stderr", stream)
    set_verbosity(Verbosity.QUIET)
    try:
        with corpus_progress(10, Account()) as progress:
            clock[0] += 61
            progress.show()
    finally:
        set_verbosity(Verbosity.NORMAL)
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("account", "text"),
    [
        (Account(), "0 lines: 0 translated, 0 empty"),
        (Account(1, 1, seconds=0.5), "1 line: 0 translated, 1 empty; 0:00, 2 lines/s"),
        (
            Account(3000, 10, 2, 5, 60_000, 100.0),
            "3,000 lines: 2,990 translated, 10 empty; 2 longer than the token limit; "
            "5 with text outside the vocabulary; 1:40, 30 lines/s, 60,000 tokens, 600 tokens/s",
        ),
    ],
)
def test_account_is_one_line(account: Account, text: str) -> None:
    assert account.text("translated", "tokens") == text
