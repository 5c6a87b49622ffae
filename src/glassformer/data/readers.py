"""Lines of files, plain, compressed or standard input, within a limit of bytes; rows of JSONL and Parquet.

A line ends at ``\\n`` and nowhere else: U+2028, ``\\x0b`` or ``\\x85`` inside a sentence must not shift one side of a
parallel corpus against the other.
"""

import gzip
import json
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, BinaryIO, Generic, Literal, NamedTuple, TypeVar, cast

from glassformer.data.input_errors import missing, refuse_wide_encoding, way_out
from glassformer.data.optional_formats import ZstdReader, parquet_lines
from glassformer.errors import DataError
from glassformer.storage.regular_files import MAX_LINE_BYTES, display_name, open_regular

Fault = Literal["invalid_utf8", "malformed"]
U = TypeVar("U")
V = TypeVar("V")

STDIN = "-"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
CHUNK_BYTES = 1 << 16
CHUNK_ROWS = 4096
COMPRESSED = (".gz", ".zst")
JSON_ROWS = (".jsonl", ".parquet")
"""Files with an object a row. A row of Parquet is read as the line of JSONL with the same columns."""
CHUNK_CHARACTERS = 1 << 20  # a token takes some hundred bytes while it is encoded


class Row(NamedTuple, Generic[V]):
    """The value of one line, or the fault for which it has none."""

    line: int  # 1-based
    value: V
    fault: Fault | None = None


def uncompressed(path: str) -> str:
    """The name of a file without the suffix of its compression."""
    for suffix in COMPRESSED:
        path = path.removesuffix(suffix)
    return path


def parsed_row(line: int, value: U, parse: Callable[[U], V], blank: V) -> Row[V]:
    """Parse the value of one line. A row with a fault has the value ``blank``.

    ``parse`` raises ``KeyError``, ``TypeError`` or ``ValueError`` for a malformed value, and ``UnicodeError`` (by
    ``require_unicode``) for text that is not valid Unicode.
    """
    try:
        return Row(line, parse(value))
    except UnicodeError:
        return Row(line, blank, "invalid_utf8")
    except (ValueError, RecursionError, KeyError, TypeError):
        return Row(line, blank, "malformed")


def json_row(line: int, text: str, parse: Callable[[Any], V], blank: V) -> Row[V]:
    """Parse one line of JSON by ``parsed_row``: ``parse`` takes its value. A blank line has the value ``blank``."""
    if not text.strip():
        return Row(line, blank)
    row = parsed_row(line, text, lambda text: parse(json.loads(text)), blank)
    return row if row.fault is None or is_unicode(text) else Row(line, blank, "invalid_utf8")


def text_row(line: int, raw: bytes) -> Row[str]:
    """Decode one line. If it is not valid UTF-8, the row has a fault and no text."""
    try:
        return Row(line, raw.decode())
    except UnicodeDecodeError:
        return Row(line, "", "invalid_utf8")


def json_rows(lines: Iterator[bytes], parse: Callable[[Any], V], blank: V) -> Iterator[Row[V]]:
    """``json_row`` of each of ``lines``."""
    for number, raw in enumerate(lines, start=1):
        line, text, fault = text_row(number, raw)
        yield Row(line, blank, fault) if fault else json_row(line, text, parse, blank)


def chunked(rows: Iterator[V], characters: Callable[[V], int]) -> Iterator[list[V]]:
    """Chunks of at most ``CHUNK_ROWS`` and about ``CHUNK_CHARACTERS``: rows may be so long that few fit memory."""
    chunk, total = list[V](), 0
    for row in rows:
        chunk.append(row)
        total += characters(row)
        if len(chunk) >= CHUNK_ROWS or total > CHUNK_CHARACTERS:
            yield chunk
            chunk, total = [], 0
    if chunk:
        yield chunk


def require_unicode(*texts: Any) -> None:
    r"""Raise ``TypeError`` for a value that is no text, ``UnicodeError`` for lone surrogates.

    The surrogate "\ud800" is valid JSON and no text.
    """
    "".join(texts).encode()


def is_unicode(text: str) -> bool:
    """True if ``text`` has no lone surrogates."""
    try:
        require_unicode(text)
    except UnicodeError:
        return False
    return True


def read_lines(path: str | Path, limit: int = MAX_LINE_BYTES) -> Iterator[str]:
    """The lines of one file, plain or ``.gz``; ``-`` is standard input. An empty file is not an error.

    A line of more than ``limit`` bytes is a ``DataError``, raised before the rest of the line is read.
    """
    name = display_name(path)
    for number, raw in enumerate(raw_lines(Path(path), limit=limit), start=1):
        try:
            yield raw.decode()
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name}, line {number}: not valid UTF-8 ({error.reason}); "
                "fix the line, or convert the text: iconv -f LATIN1 -t UTF-8"
            ) from None


def parallel_lines(source: str | Path, target: str | Path, limit: int = MAX_LINE_BYTES) -> tuple[list[str], list[str]]:
    """The lines of two files that belong together; ``DataError`` names both counts when they differ."""
    pairs = list(paired_lines(source, target, limit))
    return [source for source, _ in pairs], [target for _, target in pairs]


def paired_lines(source: str | Path, target: str | Path, limit: int = MAX_LINE_BYTES) -> Iterator[tuple[str, str]]:
    """The lines of two files side by side, read as they are needed; ``DataError`` at the end of the shorter one."""
    if str(source) == str(target) == STDIN:
        raise DataError("standard input cannot be both files; name a file for one of them")
    lines = read_lines(source, limit), read_lines(target, limit)
    for done, (first, second) in enumerate(zip_longest(*lines)):
        if first is None or second is None:
            counts = [done, done]
            counts[0 if second is None else 1] += 1 + sum(1 for _ in lines[0 if second is None else 1])
            raise DataError(
                f"{source} has {counts[0]:,} lines and {target} {counts[1]:,}; the first without a partner "
                f"is line {done + 1}, which {target if second is None else source} does not have"
            )
        yield first, second


def raw_lines(
    path: Path,
    ends: bool = False,
    limit: int = MAX_LINE_BYTES,
    setting: str = "data.max_line_bytes",
    pipes: bool = True,
) -> Iterator[bytes]:
    """The undecoded lines of one file, plain or ``.gz``, without a byte order mark.

    With ``ends`` each line keeps its line end, as ``\\n``. A line of more than ``limit`` bytes is a
    ``DataError`` that suggests raising ``setting``, if there is one. ``pipes``: see ``open_bytes``.

    The lines of a ``.parquet`` file are its rows in JSON.
    """
    try:
        if path.suffix == ".parquet":
            yield from _parquet_lines(path, b"\n" if ends else b"", limit)
            return
        with open_bytes(path, pipes) as file:
            lines = _split(file, ends, limit)
            opening = list[bytes]()
            for line in islice(lines, 2):  # the first may be empty, so that only the second shows the encoding
                opening.append(line.removesuffix(b"\n"))
                refuse_wide_encoding(display_name(path), b"\n".join(opening))
                yield line
            yield from lines
    except _LongLineError as error:
        raise DataError(
            f"has more than {limit:,} bytes",
            where=f"{display_name(path)}, line {error.line}",
            remedy="break the line",
            setting=setting,
            advice=f"raise {setting}" if setting else "",
        ) from None


@contextmanager
def open_bytes(path: Path, pipes: bool = True) -> Iterator[BinaryIO]:
    """Open a file, plain or ``.gz``, or standard input (``-``) for reading. Errors of reading become ``DataError``.

    Without ``pipes``, only a regular file is opened, and ``-`` is a file of that name.
    """
    try:
        if pipes and str(path) == STDIN:
            yield sys.stdin.buffer
            return
        with path.open("rb") if pipes else open_regular(path) as file:
            yield _decompressed(path, file)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: not a complete gzip file ({error}); copy or compress it again") from None
    except OSError as error:
        raise unreadable(path, error) from None


def _decompressed(path: Path, file: BinaryIO) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    return cast(BinaryIO, ZstdReader(path, file)) if path.suffix == ".zst" else file


def _parquet_lines(path: Path, end: bytes, limit: int) -> Iterator[bytes]:
    try:
        for number, line in enumerate(parquet_lines(path), start=1):
            _check_length(line, limit, number)
            yield line + end
    except OSError as error:
        raise unreadable(path, error) from None


class _LongLineError(Exception):
    """Error for a line, numbered from 1, that exceeds the length limit."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


def _split(file: BinaryIO, ends: bool, limit: int) -> Iterator[bytes]:
    """Split chunks into lines; ``file.readline`` with a limit would take longer than all other steps."""
    end = b"\n" if ends else b""
    size = min(CHUNK_BYTES, limit)  # then only a line that began in an earlier chunk can be too long
    number, mark = 1, BYTE_ORDER_MARK
    begun, length = list[bytes](), 0  # parts of an unfinished line, joined once
    while chunk := file.read1(size):  # type: ignore[attr-defined]
        first, *others = chunk.split(b"\n")
        begun.append(first)
        length += len(first)
        if length > limit:
            _check_length(b"".join(begun), limit, number)
        if not others:
            continue
        yield b"".join(begun).removesuffix(b"\r").removeprefix(mark) + end
        rest = others.pop()
        begun, length = [rest], len(rest)
        for line in others:
            yield line.removesuffix(b"\r") + end
        number, mark = number + 1 + len(others), b""
    if length:
        yield b"".join(begun).removesuffix(b"\r").removeprefix(mark)


def _check_length(line: bytes, limit: int, number: int) -> None:
    if len(line) > limit and len(line.removesuffix(b"\r")) > limit:
        raise _LongLineError(number)


def regular(path: Path) -> Path:
    """Raise ``DataError`` unless ``path`` is a regular file.

    Text is read for its vocabulary, its fingerprint and its tokens, and a pipe cannot be read twice.
    """
    if path.is_file():
        return path
    if path.is_dir():
        raise DataError(f"{path}: is a folder; name a file")
    if path.exists():
        raise DataError(f"{path}: is not a regular file; store the text in one")
    raise missing(path)


def unreadable(path: Path, error: OSError) -> DataError:
    """Error for a file that cannot be read."""
    hint = "choose a readable file"
    if isinstance(error, FileNotFoundError):
        hint = way_out(path, hint)
    return DataError(f"{display_name(path)}: cannot be read ({error.strerror or error}); {hint}")
