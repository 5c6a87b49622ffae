"""Progress and account of a corpus: lines, tokens, rates, and the time left."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from time import monotonic
from typing import Any, Self

from glassformer.cli.messages import Verbosity, clock, console, note, verbosity

LOG_SECONDS = 60.0
"""Interval of progress lines if standard error is not a terminal."""


@dataclass
class Account:
    """Numbers of lines by their outcome. They are stored with the output, so that they cover interrupted runs too."""

    lines: int = 0
    empty: int = 0
    """Lines without text."""
    long: int = 0
    """Lines of more tokens than the limit, which were split or truncated."""
    unknown: int = 0
    """Lines with text outside the vocabulary."""
    tokens: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, state: dict[str, Any]) -> Self:
        return cls(**{field.name: state[field.name] for field in fields(cls)})

    def text(self, done: str, unit: str) -> str:
        """One line: ``1,000 lines: 990 translated, 10 empty; …``; ``done`` is the participle of the verb."""
        parts = [f"{self.lines:,} {_lines(self.lines)}: {self.lines - self.empty:,} {done}, {self.empty:,} empty"]
        parts += [f"{self.long:,} longer than the token limit"] * bool(self.long)
        parts += [f"{self.unknown:,} with text outside the vocabulary"] * bool(self.unknown)
        rates = [f"{self.lines / self.seconds:,.0f} lines/s"] if self.seconds else []
        if self.tokens and self.seconds:
            rates.append(f"{self.tokens:,} {unit}, {self.tokens / self.seconds:,.0f} {unit}/s")
        return "; ".join([*parts, *([f"{clock(self.seconds)}, {', '.join(rates)}"] if rates else [])])


class CorpusProgress:
    """Progress on stderr: a bar on a terminal, else a line a minute; nothing if the command is quiet."""

    def __init__(self, total: int | None, account: Account, bar: Any = None) -> None:
        self.total, self.account, self.bar = total, account, bar
        self.before = account.lines
        self.began = self.logged = monotonic()
        self.task = None if bar is None else bar.add_task("starting", total=total, completed=account.lines)

    def show(self) -> None:
        """Show the account as it is now."""
        with suppress(OSError):  # nobody reads stderr any longer
            if self.bar is not None:
                self.bar.update(self.task, completed=self.account.lines, description=self._rates())
            elif monotonic() - self.logged >= LOG_SECONDS:
                self.logged = monotonic()
                total = "" if self.total is None else f" of {self.total:,}"
                note(f"{self.account.lines:,}{total} lines  {self._rates()}")

    def _rates(self) -> str:
        seconds = monotonic() - self.began
        rate = (self.account.lines - self.before) / seconds if seconds else 0.0
        if self.total is None or not rate:
            return f"{rate:,.0f} lines/s"
        return f"{rate:,.0f} lines/s, {clock((self.total - self.account.lines) / rate)} left"


@contextmanager
def corpus_progress(total: int | None, account: Account) -> Iterator[CorpusProgress]:
    """Progress of ``account`` towards ``total`` lines, None if that is unknown."""
    if not sys.stderr.isatty() or verbosity() == Verbosity.QUIET:
        yield CorpusProgress(total, account)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = BarColumn(20), MofNCompleteColumn(), TextColumn("{task.description}", markup=False)
    bar = Progress(*columns, console=console(stderr=True), transient=True)
    try:
        with suppress(OSError):
            bar.start()
        yield CorpusProgress(total, account, bar)
    finally:
        with suppress(OSError):
            bar.stop()


def show_cursor() -> None:
    """Show the cursor of the terminal, which a progress bar hides; a signal may end the process before the bar does."""
    stream = sys.__stderr__  # the bar replaces ``sys.stderr``
    if stream is not None and stream.isatty():
        with suppress(OSError):
            os.write(stream.fileno(), b"\x1b[?25h")


def _lines(count: int) -> str:
    return "line" if count == 1 else "lines"
