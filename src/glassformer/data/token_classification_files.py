"""Tagged sentences as they lie on disk: columns as in CoNLL, or JSONL, plain or gzip."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.data.config import TaggedConfig
from glassformer.data.readers import Row, json_rows, raw_lines, regular, require_unicode
from glassformer.errors import DataError

DOCUMENT_MARK = "-DOCSTART-"
"""The word of a CoNLL-2003 line that opens a document; it is no sentence."""
_CONLL_U = re.compile(rb"(1|1-\d+|0\.1)\t([^\t]+\t){8}[^\t]+")
"""The first line of ten columns, one of them the number of the word: of words written as one 1-2, of none 0.1."""


class TaggedWords(NamedTuple):
    words: list[str]
    tags: list[str]
    lines_a_word: int = 1  # 0: all on one line


TaggedRow = Row[TaggedWords]


def read_tagged(config: TaggedConfig, path: str) -> Iterator[TaggedRow]:
    """Every sentence of ``path`` in order, faulty ones included. A line is that of the first word, or of the fault."""
    lines = raw_lines(regular(Path(path)), limit=config.max_line_bytes)
    return _jsonl(lines, config) if path.removesuffix(".gz").endswith(".jsonl") else _columns(lines, path)


def _columns(lines: Iterator[bytes], path: str) -> Iterator[TaggedRow]:
    sentence, begun = Row(0, TaggedWords([], [])), False
    for line, raw in enumerate(lines, start=1):
        if not begun and raw.strip() and not raw.startswith(b"#"):
            begun = True
            _refuse_conll_u(raw, f"{path}, line {line}")
        if not raw.strip():
            if sentence.value.words or sentence.fault:
                yield sentence
            sentence = Row(0, TaggedWords([], []))
            continue
        if sentence.fault:
            continue
        try:
            columns = raw.decode().split("\t" if b"\t" in raw else " ")
        except UnicodeDecodeError:
            sentence = Row(line, TaggedWords([], []), "invalid_utf8")
            continue
        columns = [column for column in columns if column]
        if not columns or columns[0] == DOCUMENT_MARK:
            continue
        if len(columns) == 1:
            sentence = Row(line, TaggedWords([], []), "malformed")
            continue
        sentence = sentence if sentence.line else sentence._replace(line=line)
        sentence.value.words.append(columns[0])
        sentence.value.tags.append(columns[-1])
    if sentence.value.words or sentence.fault:
        yield sentence


def _refuse_conll_u(raw: bytes, where: str) -> None:
    """Numbers would be taken for words, remarks for sentences, and the last column for the tag, which is the fourth."""
    if _CONLL_U.fullmatch(raw):
        raise DataError(
            f"{where}: is CoNLL-U, ten columns with a number first; keep words and tags, as with "
            r"awk -F'\t' -v OFS='\t' '/^[0-9]+\t/ {print $2, $4} /^$/' FILE"
        )


def _jsonl(lines: Iterator[bytes], config: TaggedConfig) -> Iterator[TaggedRow]:
    def parse(value: Any) -> TaggedWords:
        words, tags = value[config.tokens_key], value[config.tags_key]
        require_unicode(*words, *tags)
        if not isinstance(words, list) or not isinstance(tags, list) or len(words) != len(tags):
            raise ValueError("give a tag for each word")
        return TaggedWords(words, tags, lines_a_word=0)

    return json_rows(lines, parse, TaggedWords([], []))
