"""Text in and out of the verbs: a file or stdin, stdout or a file that appears only when it is whole."""

import errno
import io
import os
import re
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

from glassformer.storage.regular_files import MAX_LINE_BYTES

if TYPE_CHECKING:
    from rich.console import Console


_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters (C0, DEL, C1), line separators, marks of text direction, and lone surrogates."""
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str, keep: str = "") -> str:
    """Escape the characters that control a terminal: ``\\x1b``, ``\\n``, ``\\u202e``."""

    def shown(match: re.Match[str]) -> str:
        character, code = match[0], ord(match[0])
        if character in keep:
            return character
        return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")

    return _UNSEEN.sub(shown, text)


def console(**options: Any) -> "Console":
    """A rich console that escapes control characters in names and texts."""
    from rich.console import Console, ConsoleOptions, RenderHook, RenderResult
    from rich.segment import Segment

    class Visible:
        def __init__(self, content: Any) -> None:
            self.content = content

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            for segment in console.render(self.content, options):
                yield segment if segment.control else Segment(visible(segment.text, keep="\n"), segment.style)

    class Hook(RenderHook):
        def process_renderables(self, renderables: list[Any]) -> list[Any]:
            return [Visible(content) for content in renderables]

    made = Console(highlight=False, **options)
    made.push_render_hook(Hook())
    return made


def note(text: str) -> None:
    """Print a message to stderr; a closed stderr is not an error."""
    try:
        print(visible(text), file=sys.stderr, flush=True)
    except OSError:
        silence(sys.stderr)


def say(text: str) -> None:
    """Print a line of output; only on a terminal, control characters are escaped."""
    with writing("-") as stream:
        shown = visible(text, keep="\n\t") if sys.stdout.isatty() else text
        stream.write(f"{shown}\n")


def silence(stream: TextIO) -> None:
    """Drop what ``stream`` still holds and is given later, so that no flush fails, not the one at exit either."""
    with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def read_text(file: str, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[str]:
    """The lines of ``file``, or of stdin for ``-``."""
    from glassformer.data import read_lines
    from glassformer.errors import DataError

    if not os.path.lexists(file):
        if " " in file:
            way = "a text itself goes through standard input: echo TEXT | glassformer …"
            raise DataError(f"{file!r}: no such file; {way}")
        if "=" in file:
            raise DataError(f"{file!r}: no such file; a setting, where the verb has them, follows --set")
    return read_lines(file, max_line_bytes)


class Output:
    """What a verb writes to; a fault says which file it is of."""

    def __init__(self, stream: TextIO, name: str):
        self.stream, self.name = stream, name

    def write(self, text: str) -> None:
        with explaining(self.name):
            self.stream.write(text)

    def flush(self) -> None:
        with explaining(self.name):
            self.stream.flush()


@contextmanager
def explaining(name: str) -> Iterator[None]:
    """What the system says when ``name`` cannot be written, with the way out. That a reader has gone is no fault."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        from glassformer.errors import DataError

        way_out = "free some space or name" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "name"
        raise DataError(f"{name}: cannot be written ({error.strerror or error}); {way_out} another file") from None


@contextmanager
def writing(output: str) -> Iterator[Output]:
    """stdout for ``-``; else a file written aside and renamed at the end, so that it is never half there."""
    if output == "-":
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # whatever the locale: input is read so too
        stdout = Output(sys.stdout, "standard output")
        yield stdout
        stdout.flush()
        return
    path = Path(output)
    with appearing(path) as place, _opened(place, str(path.resolve())) as stream:
        yield stream


@contextmanager
def appearing(output: Path) -> Iterator[Path]:
    """Where to write what becomes ``output`` once it is whole; a device or a pipe is written to, not replaced."""
    from glassformer.errors import DataError

    path = output.resolve()  # the file that a link leads to, and not the link, is replaced
    if path.is_dir() or not path.parent.is_dir():
        fault = "is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise DataError(f"{path}: cannot be written ({fault}); name a file in a folder that exists")
    if path.exists() and not path.is_file():
        yield path
        return
    unfinished = path.with_name(f".{path.name}.unfinished")
    with _removing(unfinished):
        yield unfinished
        with explaining(str(path)):
            if path.exists():
                unfinished.chmod(path.stat().st_mode)
            os.replace(unfinished, path)


@contextmanager
def _opened(path: Path, name: str) -> Iterator[Output]:
    with explaining(name):
        stream = path.open("w", encoding="utf-8", newline="\n")
    try:
        output = Output(stream, name)
        yield output
        output.flush()
    finally:
        with suppress(OSError):  # what could not be written has been told
            stream.close()


@contextmanager
def _removing(unfinished: Path) -> Iterator[None]:
    """``unfinished`` is gone in the end, also when SIGTERM or SIGHUP come, which end Python without any ``finally``."""

    def end(number: int, frame: FrameType | None) -> None:
        unfinished.unlink(missing_ok=True)
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    ours = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        with suppress(OSError):
            unfinished.unlink()
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def chunks(file: str, size: int, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[list[str]]:
    """The lines of ``file`` in lists of ``size``; of one line when a person types them."""
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


@contextmanager
def telling_lines(file: str | None, done: int) -> Iterator[None]:
    """What is said of a text by its number is said by its line in ``file``, of which ``done`` were read before.

    None: the texts are of no file.
    """
    from glassformer.errors import DataError
    from glassformer.generate import LogitsError
    from glassformer.text.errors import TextError, TextWarning

    if file is None:
        yield
        return
    name = "standard input" if file == "-" else file
    with warnings.catch_warnings():
        before: Any = warnings.showwarning

        def show(message: Any, *rest: Any, **named: Any) -> None:
            shown = (
                f"{name}, line {done + message.number}: {message.fault}"
                if isinstance(message, TextWarning)
                else message
            )
            before(shown, *rest, **named)

        warnings.simplefilter("always", TextWarning)
        warnings.showwarning = show
        try:
            yield
        except TextError as error:
            raise DataError(f"{name}, line {done + error.number}: {error.fault}") from None
        except LogitsError as error:
            raise DataError(f"{name}, line {done + error.text + 1}: {error.fault}") from None


def given(**options: Any) -> dict[str, Any]:
    """The options that were named."""
    return {name: value for name, value in options.items() if value is not None}


def settings(overrides: list[str] | None) -> dict[str, Any]:
    """``["beam_size=5"]`` as ``{"beam_size": 5}``."""
    from glassformer.config import apply_override
    from glassformer.errors import ConfigError

    values: dict[str, Any] = {}
    for override in overrides or []:
        if "=" not in override:
            raise ConfigError(f"{override!r} is not key=value; write for example beam_size=5")
        apply_override(values, override)
    return values
