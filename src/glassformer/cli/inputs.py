"""Lines to predict, in windows of bounded size, and the part of them that one machine takes."""

import re
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, Self, TypeVar

from glassformer.cli.io import read_text
from glassformer.cli.lines import LineWindow
from glassformer.storage.regular_files import MAX_LINE_BYTES

Input = TypeVar("Input")

WINDOW_CHARACTERS = 1 << 20
"""A window ends after about as many characters: lines may be so long that few fit in memory."""


@dataclass(frozen=True)
class LineInput(Generic[Input]):
    """Lines that can be read again: ``read`` begins anew.

    ``name`` is the file that errors name, None for texts that are arguments; ``files`` are all that are read.
    """

    name: str | None
    files: tuple[str, ...]
    read: Callable[[], Iterable[Input]]

    @property
    def regular(self) -> bool:
        """True if reading the files a second time gives the same lines."""
        return all(file != "-" and Path(file).is_file() for file in self.files)

    @property
    def typed(self) -> bool:
        """True if the lines come from a terminal."""
        return "-" in self.files and sys.stdin.isatty()


def line_input(file: str, max_line_bytes: int = MAX_LINE_BYTES) -> LineInput[str]:
    """The lines of ``file``, or of stdin for ``-``."""
    return LineInput(file, (file,), partial(read_text, file, max_line_bytes))


class Extent(NamedTuple):
    """Size of the input: the number of lines of each window."""

    windows: Sequence[int]

    @property
    def lines(self) -> int:
        """Number of lines."""
        return sum(self.windows)


def windows(inputs: Iterable[LineInput[Input]], size: int) -> Iterator[LineWindow[Input]]:
    """The lines of all ``inputs`` in windows of at most ``size``; a window has lines of one input only.

    A terminal has windows of one line, since its user waits for the prediction of each. Lines are numbered by input,
    texts without a file through all inputs.
    """
    n_texts = 0
    for one in inputs:
        limit = 1 if one.typed else size
        first, rows, characters = n_texts if one.name is None else 0, list[Input](), 0
        for row in one.read():
            rows.append(row)
            characters += sum(map(len, texts_of(row)))
            if len(rows) == limit or characters >= WINDOW_CHARACTERS:
                yield LineWindow(one.name, first, rows)
                first, rows, characters = first + len(rows), [], 0
        if rows:
            yield LineWindow(one.name, first, rows)
        if one.name is None:
            n_texts = first + len(rows)


def extent(inputs: Iterable[LineInput[Any]], size: int) -> Extent:
    """Read all ``inputs`` once; a line that cannot be read is an error here."""
    return Extent(array("L", (len(window.rows) for window in windows(inputs, size))))


def texts_of(row: Any) -> tuple[str, ...]:
    """The texts of one row: a line, or lines of several files."""
    return (row,) if isinstance(row, str) else row


class LineShard(NamedTuple):
    """Part ``number``, from 1, of ``parts`` of the input."""

    number: int
    parts: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``2/4``. Raises ``ConfigError`` for another form, or a part out of range."""
        from glassformer.errors import ConfigError

        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text, re.ASCII)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise ConfigError(f"--shard {text}: has the form i/n, i from 1 to n; give for example --shard 1/4")
        return cls(int(match[1]), int(match[2]))

    def of(self, total: int) -> range:
        """The windows of this part of ``total``: consecutive, and their numbers differ by at most 1."""
        return range(total * (self.number - 1) // self.parts, total * self.number // self.parts)

    def __str__(self) -> str:
        return f"{self.number}/{self.parts}"
