"""Input and output of the commands: a file or stdin; stdout, or a file that appears only once it is complete."""

import errno
import gzip
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TextIO

from glassformer.cli.messages import visible
from glassformer.storage.regular_files import MAX_LINE_BYTES


def read_text(file: str, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[str]:
    """The lines of ``file``, or of stdin for ``-``."""
    from glassformer.data import read_lines
    from glassformer.errors import DataError

    if not os.path.lexists(file):
        if " " in file:
            raise DataError(f"{file!r}: no such file; send a text through standard input: echo TEXT | glassformer …")
        if "=" in file:
            raise DataError(f"{file!r}: no such file; commands with settings take decoding.KEY=VALUE")
    refuse_parquet(file)
    return read_lines(file, max_line_bytes)


def refuse_parquet(file: str) -> None:
    """Raise ``DataError`` for a Parquet file: its rows would become lines of JSON."""
    from glassformer.errors import DataError

    if file.endswith(".parquet") and os.path.lexists(file):
        raise DataError(f"{file}: is a table, not lines of text; write its column of text to a file, one text a line")


def chunks(file: str, size: int, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[list[str]]:
    """The lines of ``file`` in lists of ``size``; one line at a time from a terminal."""
    if file == "-" and sys.stdin.isatty():
        size = 1
    chunk: list[str] = []
    for line in read_text(file, max_line_bytes):
        chunk.append(line)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


class Output:
    """A stream that a command writes to; an error names its file."""

    def __init__(self, stream: TextIO, name: str, flushes: bool = True):
        self.stream, self.name, self.flushes = stream, name, flushes

    def write(self, text: str) -> None:
        with write_errors(self.name):
            self.stream.write(text)

    def flush(self) -> None:
        """Show what is written to a reader; a compressed file has none before its end, and would grow by each flush."""
        if self.flushes:
            with write_errors(self.name):
                self.stream.flush()


@contextmanager
def write_errors(name: str) -> Iterator[None]:
    """Turn an ``OSError`` on writing ``name`` into a ``DataError``, except for a reader that closed its pipe."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        from glassformer.errors import DataError

        way_out = "free some space or name" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "name"
        raise DataError(f"{name}: cannot be written ({error.strerror or error}); {way_out} another file") from None


def say(text: str) -> None:
    """Print a line of output; only on a terminal, control characters are escaped."""
    with open_output("-") as stream:
        line = visible(text, keep="\n\t") if sys.stdout.isatty() else text
        stream.write(f"{line}\n")


@contextmanager
def open_output(output: str) -> Iterator[Output]:
    """stdout for ``-``, else a file that is replaced as a whole at the end, by gzip if it is named ``.gz``."""
    if output == "-":
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # in any locale, as input is read
        stdout = Output(sys.stdout, "standard output")
        yield stdout
        stdout.flush()
        return
    path = Path(output)
    compress = is_compressed(output) and regular_output(output) is not None
    with replace_at_end(path) as unfinished, _open(unfinished, str(path.resolve()), compress) as stream:
        yield stream


def is_compressed(output: str) -> bool:
    """True for a name that ends with ``.gz``, also if it is a link to a file of another name."""
    return output.endswith(".gz")


def regular_output(output: str) -> Path | None:
    """The file that ``output`` names, which may not exist yet; None for standard output, a device or a pipe.

    The path is that of the target of a link, not of the link. ``DataError``: it is a folder, or its folder is missing.
    """
    from glassformer.errors import DataError

    if output == "-":
        return None
    path = Path(output).resolve()
    if path.is_dir() or not path.parent.is_dir():
        fault = "is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise DataError(f"{path}: cannot be written ({fault}); name a file in a folder that exists")
    return None if path.exists() and not path.is_file() else path


@contextmanager
def replace_at_end(output: Path) -> Iterator[Path]:
    """Path to write to, renamed to ``output`` at the end; a device or a pipe is written to directly."""
    path = regular_output(str(output))
    if path is None:
        yield output.resolve()
        return
    unfinished = path.with_name(f".{path.name}.unfinished")
    with clean_up_at_signal(lambda: unfinished.unlink(missing_ok=True)):
        yield unfinished
        with write_errors(str(path)):
            if path.exists():
                unfinished.chmod(path.stat().st_mode)
            os.replace(unfinished, path)


@contextmanager
def _open(path: Path, name: str, compress: bool) -> Iterator[Output]:
    with write_errors(name):
        file = path.open("wb")
        data = gzip.GzipFile("", "wb", 6, file, mtime=0) if compress else file  # equal text, equal bytes
        stream = io.TextIOWrapper(data, encoding="utf-8", newline="\n", line_buffering=file.isatty())
    try:
        yield Output(stream, name, flushes=not compress)
        with write_errors(name):
            stream.close()  # which writes the end of a compressed file
            file.close()
    finally:
        for each in (stream, file):
            with suppress(OSError):  # an earlier error has reported the cause
                each.close()


@contextmanager
def clean_up_at_signal(clean_up: Callable[[], None]) -> Iterator[None]:
    """Call ``clean_up`` at the end, also on SIGTERM and SIGHUP, which end Python without any ``finally``."""

    def end(number: int, frame: FrameType | None) -> None:
        try:
            clean_up()
        finally:  # also if it fails, because the signal came while the same file was being written
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    signals = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in signals:
        signal.signal(number, end)
    try:
        yield
    finally:
        with suppress(OSError):
            clean_up()
        for number in signals:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def defer_signals() -> Iterator[None]:
    """Deliver SIGINT, SIGTERM and SIGHUP at the end of the block, to the handlers from before it."""
    pending: list[int] = []
    before = {kind: signal.getsignal(kind) for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    deferrable = [kind for kind, handler in before.items() if handler not in (signal.SIG_IGN, None)]
    for kind in deferrable:
        signal.signal(kind, lambda number, frame: pending.append(number))
    try:
        yield
    finally:
        for kind in deferrable:
            signal.signal(kind, before[kind])
        for number in sorted(pending, key=lambda number: number == signal.SIGINT):  # SIGINT raises an exception: last
            signal.raise_signal(number)
