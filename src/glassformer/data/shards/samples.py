"""Samples of each task: chunks of its files, encoded in any process, and what the shards hold of them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from glassformer.data.read_report import FileReadReport, ReadReport, TokenReadReport
from glassformer.data.shards.shard_index import SampleSet
from glassformer.data.token_store import Ragged, ids_dtype
from glassformer.text import Tokenizer, TokenizerPair

C = TypeVar("C")


class Chunk(NamedTuple, Generic[C]):
    """Rows of a file that one process encodes. A long document has several chunks, and the first ``opens`` it."""

    rows: list[C]
    opens: bool = True
    closes: bool = True


@dataclass
class Encoded:
    """A chunk in token ids: the columns of its samples, and the account of reading them."""

    columns: tuple[Ragged, ...]
    file: FileReadReport
    source: TokenReadReport = field(default_factory=TokenReadReport)
    target: TokenReadReport = field(default_factory=TokenReadReport)
    hashes: NDArray[np.uint64] | None = None
    """A hash of each sample where duplicates are dropped."""
    lines: NDArray[np.int64] | None = None
    """Line of each sample, beside ``hashes``."""
    names: list[list[str]] = field(default_factory=list)
    """Labels or tags of each sample, which have no number yet."""
    part: Any = None
    """The document of which this is a part (``EncodedDocument``); else None."""


@dataclass
class Written:
    """Account of the input read and written so far, from which another process can go on."""

    file: int = 0
    """Number of the file that is read."""
    chunks: int = 0
    """Chunks of that file that were read completely."""
    account: ReadReport = field(default_factory=ReadReport)
    sets: list[SampleSet] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    hashes: int = 0
    """Hashes stored for that file."""


class Samples(ABC, Generic[C]):
    """Samples of the files of one configuration. It is pickled to the processes that encode."""

    columns: tuple[str, ...]
    """Rows that a sample consists of."""
    annotations: ClassVar[tuple[str, ...]] = ()
    """Columns that hold no tokens."""
    decisive: ClassVar[tuple[str, ...]]
    """Settings of ``[data]`` that decide the samples."""
    divisible: ClassVar[bool] = False
    """True if a sample may go on in the next shard."""

    def __init__(self, config: Any, tokenizers: TokenizerPair) -> None:
        self.config, self.tokenizers = config, tokenizers
        self.folder = Path()

    @property
    def tokenizer(self) -> Tokenizer:
        return self.tokenizers.source

    @property
    def dtype(self) -> str:
        """Type of the values in the shards."""
        return ids_dtype(max(self.tokenizers.source.vocab_size, self.tokenizers.target.vocab_size))

    @property
    def settings(self) -> dict[str, Any]:
        return decisive_settings(self.decisive, self.config)

    @property
    def paths(self) -> list[str]:
        """The files that are read, in order."""
        return list(self.config.train)

    def files(self, path: str) -> Sequence[str]:
        """Names of the files behind ``path``."""
        return [path]

    def set_of(self, file: int) -> str | None:
        """Name of the set of samples that begins with this file; None if it continues the last one."""
        return self.paths[file]

    @abstractmethod
    def chunks(self, path: str) -> Iterator[Chunk[C]]:
        """The rows of one path."""

    @abstractmethod
    def encode(self, chunk: Chunk[C], path: str) -> Encoded: ...

    def assemble(self, encoded: Encoded, chunk: Chunk[Any], written: Written) -> Iterator[tuple[Ragged, ...]]:
        """Complete the samples of a chunk, in the order of the input, and add its account to ``written``."""
        written.account.files[-1].add(encoded.file)
        written.account.source.add(encoded.source)
        written.account.target.add(encoded.target)
        yield encoded.columns

    def restore(self, folder: Path, written: Written) -> None:
        """Begin the file of ``written``, or go on in it; ``folder`` has room for temporary files."""
        self.folder = folder

    def check(self, written: Written) -> None:
        """Raise ``DataError`` if all files together cannot be trained on."""


def decisive_settings(names: Sequence[str], config: Any) -> dict[str, Any]:
    """The settings of ``[data]`` that decide the samples; of ``weights`` only whether there are any."""
    values = config.model_dump(mode="json", include=set(names))
    return {name: bool(value) if name == "weights" else value for name, value in values.items()}


def ragged(rows: Sequence[Sequence[int] | NDArray[np.integer]]) -> Ragged:
    """Rows laid end to end."""
    offsets = np.cumsum([0, *map(len, rows)])
    values = np.concatenate([np.asarray(row, np.int32) for row in rows]) if rows else np.empty(0, np.int32)
    return Ragged(values, offsets)


def numbered(names: list[list[str]], known: list[str]) -> Ragged:
    """Numbers of names by their first appearance, which are added to ``known``."""
    numbers = {name: number for number, name in enumerate(known)}
    rows = [[numbers.setdefault(name, len(numbers)) for name in sample] for sample in names]
    known[:] = numbers
    return ragged(rows)
