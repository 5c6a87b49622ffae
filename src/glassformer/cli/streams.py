"""Text in and out of the verbs: a file or stdin, stdout or a file that appears only when it is whole."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO


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
    from glassformer.config import DataError

    if output == "-":
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # whatever the locale: input is read so too
        yield sys.stdout
        sys.stdout.flush()
        return
    path = Path(output).resolve()  # the file that a link leads to, and not the link, is replaced
    if path.exists() and not path.is_file() and not path.is_dir():  # a device or a pipe is written to, not replaced
        try:
            with path.open("w", encoding="utf-8", newline="\n") as stream:
                yield stream
        except BrokenPipeError:
            raise
        except OSError as error:
            raise DataError(f"{path}: cannot be written ({error.strerror or error}); name another") from None
        return
    if path.is_dir() or not path.parent.is_dir():
        fault = "is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise DataError(f"{path}: cannot be written ({fault}); name a file in a folder that exists")
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        with unfinished.open("w", encoding="utf-8", newline="\n") as stream:
            yield stream
        if path.exists():
            unfinished.chmod(path.stat().st_mode)
        os.replace(unfinished, path)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error}); name another") from None
    finally:
        with suppress(OSError):
            unfinished.unlink()


def chunks(file: str, size: int) -> Iterator[list[str]]:
    """The lines of ``file`` in lists of ``size``; of one line when a person types them."""
    if file == "-" and sys.stdin.isatty():
        size = 1
    chunk: list[str] = []
    for line in read_text(file):
        chunk.append(line)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def settings(overrides: list[str] | None) -> dict[str, Any]:
    """``["beam_size=5"]`` as ``{"beam_size": 5}``."""
    from glassformer.config import apply_override

    values: dict[str, Any] = {}
    for override in overrides or []:
        apply_override(values, override)
    return values
