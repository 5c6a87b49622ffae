"""Tagged sentences as they lie on disk: columns as in CoNLL, or JSONL, plain or gzip."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from glassformer.data.classification_config import TaggedConfig
from glassformer.data.files import Fault, raw_lines, regular
from glassformer.errors import DataError

DOCUMENT_MARK = "-DOCSTART-"
"""The word of a CoNLL-2003 line that opens a document; it is no sentence."""
_CONLL_U = re.compile(rb"(1|1-\d+|0\.1)\t([^\t]+\t){8}[^\t]+")
"""The first line of ten columns, one of them the number of the word: of words written as one 1-2, of none 0.1."""


class TaggedRecord(NamedTuple):
    """One sentence, or why there is none; ``line`` is that of its first word, or of the fault."""

    line: int  # 1-based
    words: list[str]
    tags: list[str]
    fault: Fault | None = None
    lines_a_word: int = 1  # 0: all on one line


def read_tagged(config: TaggedConfig, path: str) -> Iterator[TaggedRecord]:
    """Every sentence of ``path`` in order, those with faults included."""
    lines = enumerate(raw_lines(regular(Path(path)), limit=config.max_line_bytes), start=1)
    return _jsonl(lines, config) if path.removesuffix(".gz").endswith(".jsonl") else _columns(lines, path)


def _columns(lines: Iterator[tuple[int, bytes]], path: str) -> Iterator[TaggedRecord]:
    sentence, begun = TaggedRecord(0, [], []), False
    for line, raw in lines:
        if not begun and raw.strip() and not raw.startswith(b"#"):
            begun = True
            _refuse_conll_u(raw, f"{path}, line {line}")
        if not raw.strip():
            if sentence.words or sentence.fault:
                yield sentence
            sentence = TaggedRecord(0, [], [])
            continue
        if sentence.fault:
            continue
        try:
            columns = raw.decode().split("\t" if b"\t" in raw else " ")
        except UnicodeDecodeError:
            sentence = TaggedRecord(line, [], [], "invalid_utf8")
            continue
        columns = [column for column in columns if column]
        if not columns or columns[0] == DOCUMENT_MARK:
            continue
        if len(columns) == 1:
            sentence = TaggedRecord(line, [], [], "malformed")
            continue
        sentence = sentence if sentence.line else sentence._replace(line=line)
        sentence.words.append(columns[0])
        sentence.tags.append(columns[-1])
    if sentence.words or sentence.fault:
        yield sentence


def _refuse_conll_u(raw: bytes, where: str) -> None:
    """Numbers would be taken for words, remarks for sentences, and the last column for the tag, which is the fourth."""
    if _CONLL_U.fullmatch(raw):
        raise DataError(
            f"{where}: is CoNLL-U, ten columns with a number first; keep words and tags, as with "
            r"awk -F'\t' -v OFS='\t' '/^[0-9]+\t/ {print $2, $4} /^$/' FILE"
        )


def _jsonl(lines: Iterator[tuple[int, bytes]], config: TaggedConfig) -> Iterator[TaggedRecord]:
    for line, raw in lines:
        if not raw.strip():
            yield TaggedRecord(line, [], [])
            continue
        try:
            value = json.loads(raw.decode())
            words, tags = value[config.tokens_key], value[config.tags_key]
            "".join([*words, *tags]).encode()
        except UnicodeError:
            yield TaggedRecord(line, [], [], "invalid_utf8")
        except (ValueError, RecursionError, KeyError, TypeError):
            yield TaggedRecord(line, [], [], "malformed")
        else:
            whole = isinstance(words, list) and isinstance(tags, list) and len(words) == len(tags)
            record = TaggedRecord(line, words, tags, lines_a_word=0)
            yield record if whole else TaggedRecord(line, [], [], "malformed")
