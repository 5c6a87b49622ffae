"""Messages on standard error, and text made safe for a terminal."""

import os
import re
import sys
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console


class Verbosity(IntEnum):
    """Messages to print: warnings and errors only, notes too, or details too."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


_verbosity = Verbosity.NORMAL

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters (C0, DEL, C1), line separators, marks of text direction, and lone surrogates."""
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def set_verbosity(level: Verbosity) -> None:
    global _verbosity
    _verbosity = level


def verbosity() -> Verbosity:
    return _verbosity


def visible(text: str, keep: str = "") -> str:
    """Escape the characters that control a terminal: ``\\x1b``, ``\\n``, ``\\u202e``."""

    def escape(match: re.Match[str]) -> str:
        character, code = match[0], ord(match[0])
        if character in keep:
            return character
        return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")

    return _CONTROLS.sub(escape, text)


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


def message(text: str) -> None:
    """Print one line to stderr, also with ``--quiet``. A closed stderr is not an error."""
    try:
        print(visible(text), file=sys.stderr, flush=True)
    except OSError:
        silence(sys.stderr)


def warn(text: str) -> None:
    message(f"glassformer: warning: {text}")


def note(text: str) -> None:
    """Print a message, unless the command is quiet."""
    if _verbosity >= Verbosity.NORMAL:
        message(text)


def detail(text: str) -> None:
    """Print a message if the command is verbose."""
    if _verbosity >= Verbosity.VERBOSE:
        message(text)


def clock(seconds: float) -> str:
    """Hours, minutes and seconds: ``1:02:03``, ``2:03``."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def silence(stream: TextIO) -> None:
    """Redirect ``stream`` to the null device, so that no later flush fails, including the one at exit."""
    with suppress(OSError, ValueError), open(os.devnull, "w") as null:
        os.dup2(null.fileno(), stream.fileno())
