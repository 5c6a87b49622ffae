"""Text in and out of the verbs: a file or stdin, stdout or a file that appears only when it is whole."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


def note(text: str) -> None:
    """Say something that is not output."""
    print(text, file=sys.stderr, flush=True)


def read_text(file: str) -> Iterator[str]:
    """The lines of ``file``, or of stdin for ``-``."""
    from glassformer.data import read_lines

    return read_lines(file)


@contextmanager
def writing(output: str) -> Iterator[TextIO]:
    """stdout for ``-``; else a file written aside and renamed at the end, so that it is never half there."""
    if output == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    path = Path(output)
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        with unfinished.open("w", encoding="utf-8", newline="\n") as stream:
            yield stream
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def chunks(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    """Lists of ``size`` lines; of one line when a person types them."""
    if sys.stdin.isatty():
        size = 1
    chunk: list[str] = []
    for line in lines:
        chunk.append(line)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
