"""Parallel text as it lies on disk: two files side by side, TSV or JSONL, plain or gzip, one pair a line.

A line ends at ``\\n`` and nowhere else: U+2028, ``\\x0b`` or ``\\x85`` inside a sentence must not shift one side of a
parallel corpus against the other.
"""

import gzip
import json
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, cast

from glassformer.data.config import DataConfig
from glassformer.data.held_out import is_held_out
from glassformer.data.input_errors import missing, refuse_wide_encoding, way_out
from glassformer.errors import DataError
from glassformer.storage.regular_files import MAX_LINE_BYTES

Fault = Literal["invalid_utf8", "malformed"]

STDIN = "-"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
CHUNK_BYTES = 1 << 16


class Record(NamedTuple):
    """One pair, or why there is none on this line."""

    line: int  # 1-based
    source: str
    target: str
    fault: Fault | None = None


@dataclass(frozen=True)
class PairFiles:
    """The files behind one path of the configuration: two for parallel text, one for ``tsv`` and ``jsonl``."""

    form: Literal["parallel", "tsv", "jsonl"]
    files: tuple[Path, ...]


def find_files(config: DataConfig, path: str) -> PairFiles:
    """Raises ``DataError`` when a file is missing, a folder, or not a regular file."""
    try:
        return _find_files(config, path)
    except OSError as error:
        raise unreadable(Path(path), error) from None


def _find_files(config: DataConfig, path: str) -> PairFiles:
    plain = path.removesuffix(".gz")
    if plain.endswith(".tsv"):
        return PairFiles("tsv", (regular(Path(path)),))
    if plain.endswith(".jsonl"):
        return PairFiles("jsonl", (regular(Path(path)),))
    sides = tuple(_parallel_side(path, language) for language in (config.source, config.target))
    return PairFiles("parallel", sides)


def read_records(config: DataConfig, path: str) -> Iterator[Record]:
    """Every line of ``path`` in order, lines that hold no pair included."""
    found = find_files(config, path)
    if found.form == "parallel":
        yield from _read_parallel(found.files[0], found.files[1], config.max_line_bytes)
        return
    parse = _parse_tsv if found.form == "tsv" else _parse_jsonl
    line = first_without = 0
    tabs = found.form != "tsv"
    for line, raw in enumerate(raw_lines(found.files[0], limit=config.max_line_bytes), start=1):
        record = parse(config, line, raw)
        if not tabs:
            first_without = first_without or (line if record.fault == "malformed" else 0)
            tabs = b"\t" in raw
        yield record
    if line == 0:
        raise _empty(found.files[0])
    if first_without and not tabs:  # all lines, so the file has another format
        raise DataError(f"{path}, line {first_without}: {NO_TAB}, like all lines; {_PUT_TAB}")


def read_pairs(config: DataConfig, paths: list[str]) -> tuple[list[str], list[str]]:
    """Sources and targets of validation or test text, in order, unfiltered; a line that holds no pair is an error."""
    sources, targets = [], []
    for path in paths:
        for record in read_records(config, path):
            if record.fault:
                raise DataError(f"{path}, line {record.line}: {_explained(path, record.fault)}")
            sources.append(record.source)
            targets.append(record.target)
    return sources, targets


def read_texts(config: DataConfig, side: Literal["source", "target"]) -> Iterator[str]:
    """One side of all training text, for learning a vocabulary, without lines that are invalid or held out."""
    for path in config.train:
        for record in read_records(config, path):
            if record.fault is None and not is_held_out([record.source], config.validation_share):
                yield record.source if side == "source" else record.target


def read_lines(path: str | Path, limit: int = MAX_LINE_BYTES) -> Iterator[str]:
    """The lines of one file, plain or ``.gz``; ``-`` is standard input. An empty file is not an error.

    A line of more than ``limit`` bytes is a ``DataError``, raised before the rest of the line is read.
    """
    name = _name(path)
    for number, raw in enumerate(raw_lines(Path(path), limit=limit, setting="--max-line-bytes"), start=1):
        try:
            yield raw.decode()
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name}, line {number}: {_EXPLAINED['invalid_utf8']} ({error.reason}); "
                "fix the line, or convert the text: iconv -f LATIN1 -t UTF-8"
            ) from None


_EXPLAINED: dict[Fault, str] = {
    "invalid_utf8": "not valid UTF-8",
    "malformed": "holds no pair of texts",
}
NO_TAB = "has one column and no tab"
_PUT_TAB = "put a tab between source and target"


def _explained(path: str, fault: Fault) -> str:
    """Message for a faulty line of ``path``, with a way to fix it."""
    if fault == "malformed" and path.removesuffix(".gz").endswith(".tsv"):
        return f"{_EXPLAINED[fault]}: {NO_TAB}; {_PUT_TAB}, or remove the line"
    return f"{_EXPLAINED[fault]}; fix or remove the line"


def parallel_lines(source: str | Path, target: str | Path, limit: int = MAX_LINE_BYTES) -> tuple[list[str], list[str]]:
    """The lines of two files that belong together; ``DataError`` names both counts when they differ."""
    if str(source) == str(target) == STDIN:
        raise DataError("standard input cannot be both files; name a file for one of them")
    sources, targets = list(read_lines(source, limit)), list(read_lines(target, limit))
    if len(sources) != len(targets):
        shorter, line = (source, len(sources)) if len(sources) < len(targets) else (target, len(targets))
        raise DataError(
            f"{source} has {len(sources):,} lines and {target} {len(targets):,}; "
            f"the first without a partner is line {line + 1}, which {shorter} does not have"
        )
    return sources, targets


def _read_parallel(first: Path, second: Path, limit: int) -> Iterator[Record]:
    lefts, rights = raw_lines(first, limit=limit), raw_lines(second, limit=limit)
    line = 0
    while True:
        left, right = next(lefts, None), next(rights, None)
        if left is None and right is None:
            break
        line += 1
        if left is None or right is None:
            raise _unequal(first, second, line, lefts if right is None else rights, left is None)
        try:
            yield Record(line, left.decode(), right.decode())
        except UnicodeDecodeError:
            yield Record(line, "", "", "invalid_utf8")
    if line == 0:
        raise _empty(first)


def _unequal(first: Path, second: Path, line: int, rest: Iterator[bytes], first_ended: bool) -> DataError:
    """``line`` is the first of the longer file that has no partner; ``rest`` what follows it there."""
    shorter, longer = (first, second) if first_ended else (second, first)
    if line == 1:
        return _empty(shorter)
    total = line + sum(1 for _ in rest)
    return DataError(
        f"{shorter} has {line - 1} lines and {longer} has {total}: line {line} of {longer} has no partner; "
        "parallel files pair up line by line"
    )


def _parse_tsv(config: DataConfig, line: int, raw: bytes) -> Record:
    try:
        columns = raw.decode().split("\t")
    except UnicodeDecodeError:
        return Record(line, "", "", "invalid_utf8")
    if len(columns) >= 2:
        return Record(line, columns[0], columns[1])
    return Record(line, "", "", "malformed" if columns[0].strip() else None)


def _parse_jsonl(config: DataConfig, line: int, raw: bytes) -> Record:
    try:
        text = raw.decode()
        if not text.strip():
            return Record(line, "", "")
        value = json.loads(text)
    except UnicodeDecodeError:
        return Record(line, "", "", "invalid_utf8")
    except (ValueError, RecursionError):
        return Record(line, "", "", "malformed")
    if isinstance(value, dict):
        value = value.get("translation", value)
    if not isinstance(value, dict):
        return Record(line, "", "", "malformed")
    source, target = value.get(config.source), value.get(config.target)
    if not isinstance(source, str) or not isinstance(target, str):
        return Record(line, "", "", "malformed")
    try:
        (source + target).encode()
    except UnicodeEncodeError:  # "\ud800" is valid JSON and no text
        return Record(line, "", "", "invalid_utf8")
    return Record(line, source, target)


def raw_lines(
    path: Path, ends: bool = False, limit: int = MAX_LINE_BYTES, setting: str = "data.max_line_bytes"
) -> Iterator[bytes]:
    """The undecoded lines of one file, plain or ``.gz``, without a byte order mark.

    With ``ends`` each line keeps its line end, as ``\\n``. A line of more than ``limit`` bytes is a
    ``DataError`` that suggests raising ``setting``.
    """
    try:
        with _open(path) as file:
            lines = _split(file, ends, limit)
            opening = list[bytes]()
            for line in islice(lines, 2):  # the first may be empty, so that only the second shows the encoding
                opening.append(line.removesuffix(b"\n"))
                refuse_wide_encoding(_name(path), b"\n".join(opening))
                yield line
            yield from lines
    except _LongLineError as error:
        fault = f"has more than {limit:,} bytes; break the line, or raise {setting}"
        raise DataError(f"{_name(path)}, line {error.line}: {fault}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: not a complete gzip file ({error}); copy or compress it again") from None
    except OSError as error:
        raise unreadable(path, error) from None


def _open(path: Path) -> AbstractContextManager[BinaryIO]:
    if str(path) == STDIN:
        return nullcontext(sys.stdin.buffer)
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path))
    return path.open("rb")


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


def _parallel_side(prefix: str, language: str) -> Path:
    plain, compressed = Path(f"{prefix}.{language}"), Path(f"{prefix}.{language}.gz")
    if plain.exists() or plain.is_symlink():
        return regular(plain)
    if compressed.exists():
        return regular(compressed)
    hint = way_out(plain, "a path is a prefix of two such files, a .tsv or a .jsonl, each also .gz")
    if Path(prefix).is_dir():
        hint = f"{prefix} is a folder; name the prefix of the files in it"
    elif prefix.removesuffix(".gz").endswith(f".{language}"):
        hint = f"give the prefix without .{language}"
    raise DataError(f"{plain}: no such file (nor {compressed.name}); {hint}")


def regular(path: Path) -> Path:
    """A pipe cannot be read twice, and text is: for its vocabulary, for its fingerprint, for its tokens."""
    if path.is_file():
        return path
    if path.is_dir():
        raise DataError(f"{path}: is a folder; name a file")
    if path.exists():
        raise DataError(f"{path}: is not a regular file; store the text in one")
    raise missing(path)


def _empty(path: Path) -> DataError:
    return DataError(f"{path}: is empty; a corpus needs at least one line")


def unreadable(path: Path, error: OSError) -> DataError:
    hint = "choose a readable file"
    if isinstance(error, FileNotFoundError):
        hint = way_out(path, hint)
    return DataError(f"{_name(path)}: cannot be read ({error.strerror or error}); {hint}")


def _name(path: str | Path) -> str:
    return "standard input" if str(path) == STDIN else str(path)
