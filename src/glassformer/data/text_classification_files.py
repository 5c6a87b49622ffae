"""Labeled texts as they lie on disk: CSV, TSV or JSONL, plain or gzip."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.data.config import LabeledConfig
from glassformer.data.parallel_text import NO_TAB
from glassformer.data.readers import Row, is_unicode, json_row, parsed_row, raw_lines, regular, require_unicode
from glassformer.errors import DataError, nearest

Cells = tuple[int, list[str]]  # its first line, 1-based, and its fields


class LabeledText(NamedTuple):
    texts: tuple[str, ...]  # the text, and its pair where there is one
    label: str


LabeledRow = Row[LabeledText]
BLANK = LabeledText(("",), "")


def read_labeled(config: LabeledConfig, path: str) -> Iterator[LabeledRow]:
    """Every row of ``path`` in order, those that hold no example included. A line is the first of its row.

    Raises ``DataError`` when the file cannot be read, is no valid CSV, or has not the columns.
    """
    plain = path.removesuffix(".gz")
    if plain.endswith(".jsonl"):
        return _from_json_lines(config, path)
    if plain.endswith(".csv"):
        return _from_table(config, path, _csv_rows(config, path))
    if plain.endswith(".tsv"):
        return _from_table(config, path, _tsv_rows(config, path))
    raise DataError(f"{path}: labeled text is a .csv, a .tsv or a .jsonl, each also .gz; rename or convert the file")


def _columns(config: LabeledConfig) -> list[str]:
    texts = [config.text_column, *([config.pair_column] if config.pair_column else [])]
    return [*texts, config.label_column]


def _lines(config: LabeledConfig, path: str) -> Iterator[str]:
    """Bytes that are not UTF-8 become lone surrogates, so that they cost the record they are in and no other."""
    for raw in raw_lines(regular(Path(path)), ends=True, limit=config.max_line_bytes):
        yield raw.decode(errors="surrogateescape")


def _csv_rows(config: LabeledConfig, path: str) -> Iterator[Cells]:
    reader = csv.reader(_lines(config, path), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "field limit" in str(error):
                raise DataError(
                    f"{path}, line {line}: a field has more than {csv.field_size_limit():,} characters; shorten it, "
                    "close the quotes if they are open, or give a .jsonl"
                ) from None
            raise DataError(
                f"{path}, line {line}: not valid CSV ({error}); "
                'close the quotes of its fields, and write a quote in one twice ("")'
            ) from None
        yield line, fields


def _tsv_rows(config: LabeledConfig, path: str) -> Iterator[Cells]:
    for line, text in enumerate(_lines(config, path), start=1):
        text = text.removesuffix("\n")
        yield line, text.split("\t") if text else []


def _from_table(config: LabeledConfig, path: str, rows: Iterator[Cells]) -> Iterator[LabeledRow]:
    _, header = next(rows, (1, []))
    places = [_place(path, header, name) for name in _columns(config)]
    for line, fields in rows:
        if not fields:
            yield Row(line, BLANK)
        elif len(fields) != len(header):
            yield Row(line, BLANK, "malformed")
        else:
            yield parsed_row(line, [fields[place] for place in places], _labeled, BLANK)


def _place(path: str, header: list[str], name: str) -> int:
    if not header:
        raise DataError(f"{path}: is empty; its first line names the columns")
    if not is_unicode("".join(header)):
        raise DataError(f"{path}, line 1: the names of the columns are not valid UTF-8; convert the file to it")
    if header.count(name) > 1:
        raise DataError(f"{path}, line 1: {header.count(name)} columns are named {name!r}; rename all but one")
    if name not in header:
        if len(header) == 1 and path.removesuffix(".gz").endswith(".tsv") and any(sign in header[0] for sign in ",; "):
            raise DataError(f"{path}, line 1: no column {name!r}: {header[0]!r} {NO_TAB}; put tabs between the columns")
        if len(header) == 1:
            raise DataError(
                f"no column {name!r}, the only one is {header[0]!r}",
                where=f"{path}, line 1",
                setting="data.text_column",
                advice="set data.text_column and data.label_column",
            )
        raise DataError(
            f"{path}, line 1: no column {name!r}, the columns are {', '.join(header)}; {nearest(name, header)}"
        )
    return header.index(name)


def _from_json_lines(config: LabeledConfig, path: str) -> Iterator[LabeledRow]:
    def parse(value: Any) -> LabeledText:
        *texts, label = [value[name] for name in _columns(config)]
        return _labeled([*texts, str(label) if isinstance(label, int) and not isinstance(label, bool) else label])

    for number, text in enumerate(_lines(config, path), start=1):
        yield json_row(number, text, parse, BLANK)


def _labeled(fields: list[str]) -> LabeledText:
    require_unicode(*fields)
    *texts, label = fields
    if not label.strip():
        raise ValueError("the label is blank")
    return LabeledText(tuple(texts), label.strip())
