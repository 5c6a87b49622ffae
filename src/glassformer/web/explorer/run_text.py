"""Texts of a run: sentences of its validation files, and gold links, from the paths in its configuration."""

import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, TypeVar

from glassformer.config import Config
from glassformer.data.config import DataConfig, DocumentsConfig, LabeledConfig, TaggedConfig
from glassformer.data.documents import read_pieces, text_files
from glassformer.data.parallel_text import read_pair_rows
from glassformer.data.readers import read_lines
from glassformer.data.text_classification import read_labeled
from glassformer.data.token_classification import read_tagged
from glassformer.errors import GlassformerError

MAX_LINES = 50_000
"""Lines of a file in which a sentence pair is looked up."""
GOLD_SUFFIX = ".align"
"""Suffix of a Pharaoh file beside the two files of a path, as the demo writes it."""

Settings = TypeVar("Settings", bound=Config)


@dataclass(frozen=True)
class RunSentence:
    """A text with what the run's files say about it: its translation, and the gold links of the pair."""

    source: str
    target: str = ""
    gold: str = ""


class RunText:
    """Texts that the ``config.toml`` of the run at ``path`` names. Files that cannot be read have no sentences."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._gold: dict[tuple[str, str], tuple[str, str]] | None = None

    def validation(self, task: str, count: int) -> list[RunSentence]:
        """The first ``count`` sentences of the validation files."""
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, GlassformerError):
            data = self._data()
            return list(islice(_sentences(task, data, list(data["validation"])), count))
        return []

    def gold(self, source: str, target: str) -> tuple[str, str]:
        """Gold links of a sentence pair and the file that has them, both empty if none of the first lines does."""
        if self._gold is None:
            self._gold = {}
            with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, GlassformerError):
                self._gold = dict(_gold_lines(self._data()))
        return self._gold.get((_spaced(source), _spaced(target)), ("", ""))

    def _data(self) -> dict[str, Any]:
        values: dict[str, Any] = tomllib.loads((self.path / "config.toml").read_text(encoding="utf-8"))["data"]
        return values


def _sentences(task: str, data: dict[str, Any], paths: list[str]) -> Iterator[RunSentence]:
    if task == "translation":
        for path in paths:
            yield from _pairs(data, path, f"{path}{GOLD_SUFFIX}")
    elif task == "classification":
        for path in paths:
            rows = read_labeled(_settings(LabeledConfig, data), path)
            yield from (RunSentence(row.value.texts[0]) for row in rows if row.fault is None and row.value.texts[0])
    elif task == "tagging":
        for path in paths:
            sentences = read_tagged(_settings(TaggedConfig, data), path)
            yield from (RunSentence(" ".join(row.value.words)) for row in sentences if row.fault is None)
    else:
        for path in text_files(paths):
            pieces = read_pieces(_settings(DocumentsConfig, data), path)
            yield from (
                RunSentence(piece.text.strip()) for piece in pieces if piece.fault is None and piece.text.strip()
            )


def _gold_lines(data: dict[str, Any]) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Sentence pairs with their gold links and the name of the file, the validation files last, which decide."""
    aligned = list(zip_longest(data["train"], data.get("alignments", [])))
    for path, file in [*aligned, *((path, None) for path in data.get("validation", []))]:
        file = file or f"{path}{GOLD_SUFFIX}"
        for one in islice(_pairs(data, path, file), MAX_LINES):
            if one.gold:
                yield (_spaced(one.source), _spaced(one.target)), (one.gold, Path(file).name)


def _pairs(data: dict[str, Any], path: str, gold: str) -> Iterator[RunSentence]:
    """Pairs of a path, with the lines of a file of gold links if there is one."""
    links = read_lines(gold) if Path(gold).is_file() else iter(())
    for row, line in zip_longest(read_pair_rows(_settings(DataConfig, data), path), links):
        if row is None:
            return
        if row.fault is None and row.value.source.strip():
            yield RunSentence(row.value.source, row.value.target, line or "")


def _settings(kind: type[Settings], data: dict[str, Any]) -> Settings:
    """The settings of a reader, without those of other parts of the training."""
    return kind.model_validate({key: value for key, value in data.items() if key in kind.model_fields})


def _spaced(text: str) -> str:
    return " ".join(text.split())
