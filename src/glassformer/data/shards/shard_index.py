"""Index of a folder of shards: what they hold, of which tokenizer, and the size and SHA-256 of each."""

import os
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from glassformer.data.read_report import ReadReport
from glassformer.data.sampling import Indices
from glassformer.data.shards.shard_file import TYPES
from glassformer.data.token_store import json_digest
from glassformer.errors import DataError
from glassformer.storage.manifest import digested, parse_digested, sync

INDEX, TOKENIZER = "index.json", "tokenizer.json"
FORMAT, VERSION = "glassformer shards", 1


@dataclass(frozen=True)
class ShardEntry:
    """One shard: its file, the rows and tokens in it, and what its file must be."""

    name: str
    samples: int
    values: int
    tokens: int
    bytes: int
    sha256: str

    def content(self, divisible: bool) -> str:
        """Samples in words; tokens where a sample may go on in the next shard, so that their number says little."""
        return counted(self.tokens, "token") if divisible else counted(self.samples, "sample")


@dataclass
class SampleSet:
    """Samples that follow each other and are drawn with one weight: those of one path, or one stream."""

    path: str
    samples: int = 0
    values: int = 0


@dataclass(frozen=True)
class ShardIndex:
    """Description of a complete folder of shards. ``columns`` name the rows that a sample consists of."""

    task: str
    columns: tuple[str, ...]
    dtype: str
    tokenizer: str
    """SHA-256 of the tokenizer (``TokenizerPair.fingerprint``)."""
    settings: dict[str, Any]
    """Settings of ``[data]`` that decide the samples."""
    text: dict[str, Any]
    """Settings of ``[text]``."""
    shards: list[ShardEntry]
    sets: list[SampleSet]
    account: ReadReport
    names: list[str] = field(default_factory=list)
    """Labels or tags, in the order of their first appearance, which is their number in the shards."""

    @property
    def samples(self) -> int:
        return sum(shard.samples for shard in self.shards)

    @property
    def tokens(self) -> int:
        return sum(shard.tokens for shard in self.shards)

    @cached_property
    def first_samples(self) -> Indices:
        """The first sample of each shard, and the end of the last."""
        return np.cumsum([0, *(shard.samples for shard in self.shards)])

    @cached_property
    def first_values(self) -> Indices:
        """The first value of each shard, and the end of the last."""
        return np.cumsum([0, *(shard.values for shard in self.shards)])

    @property
    def content_digest(self) -> str:
        """SHA-256 over the shards; equal if and only if the samples are equal."""
        return json_digest([shard.sha256 for shard in self.shards])

    @property
    def fingerprint(self) -> str:
        """SHA-256 over all that decides the samples of a training, but not over the names of files."""
        sets = [[one.samples, one.values] for one in self.sets]
        shards = [[shard.samples, shard.values] for shard in self.shards]
        return json_digest([self.task, self.columns, self.tokenizer, self.content_digest, sets, shards, self.names])

    def write(self, folder: Path) -> None:
        """Write the index under a temporary name, and rename it once it is on the disk."""
        values = {
            "format": FORMAT,
            "version": VERSION,
            "task": self.task,
            "columns": list(self.columns),
            "dtype": self.dtype,
            "tokenizer": self.tokenizer,
            "settings": self.settings,
            "text": self.text,
            "shards": [asdict(shard) for shard in self.shards],
            "sets": [asdict(one) for one in self.sets],
            "account": self.account.to_json(),
            "names": self.names,
        }
        write_atomically(folder / INDEX, digested(values))

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Raises ``DataError`` in one line for a folder without a valid index."""
        values = read_digested(folder / INDEX)
        if values is None:
            raise DataError(f"{folder / INDEX}: is damaged: it does not match its own digest; copy it again")
        version = values.get("version")
        if values.get("format") != FORMAT or not isinstance(version, int):
            raise DataError(f"{folder / INDEX}: is not the index of a folder of shards; name a folder of prepare")
        if version != VERSION:
            raise DataError(
                f"{folder / INDEX}: has format version {version}, and this version reads {VERSION}; "
                "prepare the shards again"
            )
        try:
            return cls(
                values["task"],
                tuple(values["columns"]),
                {name: name for name in TYPES.values()}[values["dtype"]],
                values["tokenizer"],
                values["settings"],
                values["text"],
                [ShardEntry(**shard) for shard in values["shards"]],
                [SampleSet(**one) for one in values["sets"]],
                ReadReport.from_json(values["account"]),
                values["names"],
            )
        except (KeyError, TypeError) as error:
            raise DataError(f"{folder / INDEX}: is not complete ({error}); prepare the shards again") from None


def counted(number: int, noun: str) -> str:
    """A number and its noun, as in "1 shard" and "2 shards"."""
    return f"{number:,} {noun}{'s' if number != 1 else ''}"


def read_digested(path: Path) -> dict[str, Any] | None:
    """Read what ``digested`` made; None if a bit differs. ``DataError`` if the file cannot be read."""
    try:
        return parse_digested(path.read_bytes())
    except FileNotFoundError:
        raise DataError(
            f"{path}: no such file, so {path.parent} is no complete folder of shards; "
            f"run glassformer prepare CONFIG --output {path.parent}"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); choose a readable folder") from None


def write_atomically(path: Path, data: bytes) -> None:
    unfinished = path.with_name(path.name + ".unfinished")
    with unfinished.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)
    sync(path.parent)
