"""Parallel text: two files side by side, TSV or JSONL, one pair a line."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from glassformer.data.config import DataConfig
from glassformer.data.held_out import is_held_out
from glassformer.data.input_errors import way_out
from glassformer.data.readers import (
    COMPRESSED,
    JSON_ROWS,
    Fault,
    Row,
    json_rows,
    raw_lines,
    regular,
    require_unicode,
    text_row,
    uncompressed,
    unreadable,
)
from glassformer.errors import DataError


class TextPair(NamedTuple):
    source: str
    target: str


PairRow = Row[TextPair]
BLANK = TextPair("", "")


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
    plain = uncompressed(path)
    if plain.endswith(".tsv"):
        return PairFiles("tsv", (regular(Path(path)),))
    if plain.endswith(JSON_ROWS):
        return PairFiles("jsonl", (regular(Path(path)),))
    sides = tuple(_parallel_side(path, language) for language in (config.source, config.target))
    return PairFiles("parallel", sides)


def read_pair_rows(config: DataConfig, path: str) -> Iterator[PairRow]:
    """Every line of ``path`` in order, lines that hold no pair included."""
    found = find_files(config, path)
    if found.form == "parallel":
        yield from _read_parallel(found.files[0], found.files[1], config.max_line_bytes)
        return
    lines = raw_lines(found.files[0], limit=config.max_line_bytes)
    row: PairRow | None = None
    rows = json_rows(lines, partial(_pair_in, config), BLANK) if found.form == "jsonl" else _from_tsv(path, lines)
    for row in rows:
        yield row
    if row is None:
        raise _empty(found.files[0])


def _from_tsv(path: str, lines: Iterator[bytes]) -> Iterator[PairRow]:
    first_without, tabs = 0, False
    for line, raw in enumerate(lines, start=1):
        row = _tsv_row(text_row(line, raw))
        tabs = tabs or b"\t" in raw
        first_without = first_without or (line if row.fault == "malformed" else 0)
        yield row
    if first_without and not tabs:  # all lines, so the file has another format
        raise DataError(f"{path}, line {first_without}: {NO_TAB}, like all lines; {_PUT_TAB}")


def read_pairs(config: DataConfig, paths: list[str]) -> tuple[list[str], list[str]]:
    """Sources and targets of validation or test text, in order, unfiltered; a line that holds no pair is an error."""
    sources, targets = [], []
    for path in paths:
        for line, pair, fault in read_pair_rows(config, path):
            if fault:
                raise DataError(f"{path}, line {line}: {_explained(path, fault)}")
            sources.append(pair.source)
            targets.append(pair.target)
    return sources, targets


def read_texts(config: DataConfig, side: Literal["source", "target"]) -> Iterator[str]:
    """One side of all training text, for learning a vocabulary, without lines that are invalid or held out."""
    for path in config.train:
        for _, pair, fault in read_pair_rows(config, path):
            if fault is None and not is_held_out([pair.source], config.validation_share):
                yield pair.source if side == "source" else pair.target


_EXPLAINED: dict[Fault, str] = {
    "invalid_utf8": "not valid UTF-8",
    "malformed": "holds no pair of texts",
}
NO_TAB = "has one column and no tab"
_PUT_TAB = "put a tab between source and target"


def _explained(path: str, fault: Fault) -> str:
    """Message for a faulty line of ``path``, with a way to fix it."""
    if fault == "malformed" and uncompressed(path).endswith(".tsv"):
        return f"{_EXPLAINED[fault]}: {NO_TAB}; {_PUT_TAB}, or remove the line"
    return f"{_EXPLAINED[fault]}; fix or remove the line"


def _read_parallel(first: Path, second: Path, limit: int) -> Iterator[PairRow]:
    lefts, rights = raw_lines(first, limit=limit), raw_lines(second, limit=limit)
    line = 0
    while True:
        left, right = next(lefts, None), next(rights, None)
        if left is None and right is None:
            break
        line += 1
        if left is None or right is None:
            raise _unequal(first, second, line, lefts if right is None else rights, left is None)
        source, target = text_row(line, left), text_row(line, right)
        fault = source.fault or target.fault
        yield Row(line, BLANK, fault) if fault else Row(line, TextPair(source.value, target.value))
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


def _tsv_row(row: Row[str]) -> PairRow:
    columns = row.value.split("\t")
    if len(columns) >= 2:
        return Row(row.line, TextPair(columns[0], columns[1]))
    return Row(row.line, BLANK, row.fault or ("malformed" if columns[0].strip() else None))


def _pair_in(config: DataConfig, value: Any) -> TextPair:
    """Source and target of a JSON value."""
    value = value.get("translation", value) if isinstance(value, dict) else value
    source, target = value[config.source], value[config.target]
    require_unicode(source, target)
    return TextPair(source, target)


def _parallel_side(prefix: str, language: str) -> Path:
    plain, *others = (Path(f"{prefix}.{language}{suffix}") for suffix in ("", *COMPRESSED))
    if plain.exists() or plain.is_symlink():
        return regular(plain)
    for compressed in others:
        if compressed.exists():
            return regular(compressed)
    hint = way_out(plain, "a path is a prefix of two such files, a .tsv or a .jsonl, each also .gz")
    if Path(prefix).is_dir():
        hint = f"{prefix} is a folder; name the prefix of the files in it"
    elif uncompressed(prefix).endswith(f".{language}"):
        hint = f"give the prefix without .{language}"
    raise DataError(f"{plain}: no such file (nor {others[0].name}); {hint}")


def _empty(path: Path) -> DataError:
    return DataError(f"{path}: is empty; a corpus needs at least one line")
