"""Text of one language as it lies on disk: documents, given piece by piece, so that none need fit the memory."""

import glob
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from glassformer.data.config import DocumentsConfig
from glassformer.data.held_out import Part
from glassformer.data.readers import (
    JSON_ROWS,
    Fault,
    json_row,
    raw_lines,
    regular,
    require_unicode,
    uncompressed,
)
from glassformer.errors import DataError

PIECE_CHARACTERS = 1 << 16
"""A longer line is given in parts that end at a space: some corpora are one line of 100 million characters."""

_BETWEEN_TOKENS = re.compile(r"(?s).*\S(?=[ \n])")  # greedy: up to the last position inside no byte-level token


class Piece(NamedTuple):
    """A line of a document, or a part of a long one. The pieces end to end are the text; line ends are ``\\n``."""

    line: int  # 1-based
    text: str
    opens: bool = True  # the first piece of its document
    fault: Fault | None = None


def text_files(paths: list[str]) -> list[str]:
    """Expand each pattern in ``paths`` (``src/**/*.py``) to the matching files, sorted by name.

    A pattern without matches is left unchanged, and later reported as a missing file.
    """
    found = list[str]()
    for path in paths:
        matches: list[str] = []
        if glob.has_magic(path) and not Path(path).exists():
            matches = sorted(match for match in glob.iglob(path, recursive=True) if Path(match).is_file())
        found += matches or [path]
    return found


def text_form(path: str) -> Literal["txt", "jsonl"]:
    suffix = Path(uncompressed(path)).suffix
    if suffix in (".csv", ".tsv"):
        raise DataError(f"{path}: a table is not supported as text; convert its text to .txt or .jsonl")
    return "jsonl" if suffix in JSON_ROWS else "txt"


def read_pieces(
    config: DocumentsConfig, path: str, part: Part = "all", tokens_span_lines: bool = False
) -> Iterator[Piece]:
    """The documents of ``path`` in order, those with faults included; all of them, or one part of the file.

    A file is divided at a character. A document that is a whole file is divided there; any other belongs to the part
    in which it begins. With ``tokens_span_lines`` a piece has many lines, and encoding the pieces one by one gives the
    tokens of the entire document.
    """
    pieces = _read_lines(config, path, part)
    return _joined(pieces) if tokens_span_lines else pieces


def _read_lines(config: DocumentsConfig, path: str, part: Part) -> Iterator[Piece]:
    bounds = _bounds(config, path, part)
    lines = _lines(config, path)
    if text_form(path) == "jsonl":
        pieces = _jsonl(lines, bounds, config.text_key)
    else:
        pieces = {"file": _whole, "line": _by_line, "blank_line": _by_blank_line}[config.documents](lines, bounds)
    for piece in pieces:
        yield from _short(piece)


def training_texts(config: DocumentsConfig, tokens_span_lines: bool = False) -> Iterator[str]:
    """The training text, piece by piece, for learning a vocabulary. Unreadable lines are skipped."""
    part: Part = "train" if config.validation_share else "all"
    for path in text_files(config.train):
        pieces = read_pieces(config, path, part, tokens_span_lines)
        yield from (piece.text for piece in pieces if piece.fault is None)


class _Line(NamedTuple):
    number: int
    start: int  # characters of the file before it
    text: str  # with its end
    fault: Fault | None


def _lines(config: DocumentsConfig, path: str) -> Iterator[_Line]:
    start = 0
    for number, raw in enumerate(raw_lines(regular(Path(path)), ends=True, limit=config.max_line_bytes), start=1):
        fault: Fault | None = None
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            text, fault = raw.decode(errors="replace"), "invalid_utf8"
        yield _Line(number, start, text, fault)
        start += len(text)


def _bounds(config: DocumentsConfig, path: str, part: Part) -> range:
    """The characters of the file that are in ``part``."""
    if part == "all":
        return range(sys.maxsize)
    cut = int(sum(len(line.text) for line in _lines(config, path)) * (1 - config.validation_share))
    return range(cut) if part == "train" else range(cut, sys.maxsize)


def _short(piece: Piece) -> Iterator[Piece]:
    """Cut behind spaces, where no vocabulary has a token across."""
    begin = 0
    while (space := piece.text.find(" ", begin + PIECE_CHARACTERS)) >= 0:
        yield piece._replace(text=piece.text[begin : space + 1], opens=piece.opens and not begin)
        begin = space + 1
    yield piece._replace(text=piece.text[begin:], opens=piece.opens and not begin)


def _joined(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Join pieces of a document to about ``PIECE_CHARACTERS``, or to more if there is no place to end earlier.

    A piece ends before a space or line end that follows another character, since no byte-level token contains both.
    """
    first, texts, size, limit = None, list[str](), 0, PIECE_CHARACTERS
    for piece in pieces:
        if first is not None and (piece.opens or piece.fault):
            yield first._replace(text="".join(texts))
            first = None
        if piece.fault:
            yield piece
            continue
        if first is None:
            first, texts, size, limit = piece, [], 0, PIECE_CHARACTERS
        texts.append(piece.text)
        size += len(piece.text)
        if size < limit:
            continue
        text = "".join(texts)
        cut = found.end() if (found := _BETWEEN_TOKENS.match(text)) else 0
        if cut:
            yield first._replace(text=text[:cut])
            first = piece._replace(opens=False)
        texts, size = [text[cut:]], len(text) - cut
        limit = max(PIECE_CHARACTERS, 2 * size)
    if first is not None:
        yield first._replace(text="".join(texts))


def _whole(lines: Iterator[_Line], bounds: range) -> Iterator[Piece]:
    opens = True
    for line in lines:
        if line.start >= bounds.stop:
            break
        if text := line.text[max(0, bounds.start - line.start) : bounds.stop - line.start]:
            yield Piece(line.number, text, opens, line.fault)
            opens = False
    if opens:  # an empty file is a document too, to be accounted for
        yield Piece(1, "")


def _by_line(lines: Iterator[_Line], bounds: range) -> Iterator[Piece]:
    for line in lines:
        if line.start in bounds:
            yield Piece(line.number, line.text.removesuffix("\n"), fault=line.fault)


def _by_blank_line(lines: Iterator[_Line], bounds: range) -> Iterator[Piece]:
    opens, chosen = True, False
    for line in lines:
        if not line.text.strip():
            opens = True
            continue
        if opens:
            chosen = line.start in bounds
        if chosen:
            text = line.text.removesuffix("\n")
            yield Piece(line.number, text if opens else "\n" + text, opens, line.fault)
        opens = False


def _jsonl(lines: Iterator[_Line], bounds: range, key: str) -> Iterator[Piece]:
    def parse(value: Any) -> str:
        require_unicode(text := value[key])
        return str(text)

    for piece in _by_line(lines, bounds):
        if piece.fault:
            yield piece
            continue
        row = json_row(piece.line, piece.text, parse, "")
        yield piece._replace(text=row.value, fault=row.fault)
