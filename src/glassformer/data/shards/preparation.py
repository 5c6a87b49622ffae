"""Preparation of shards: files are read, encoded and written in constant memory, and a killed one goes on."""

import copy
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.data.read_report import FileReadReport, ReadReport
from glassformer.data.readers import regular, unreadable
from glassformer.data.shards.samples import Samples, Written
from glassformer.data.shards.shard_file import MAX_VALUES
from glassformer.data.shards.shard_index import (
    INDEX,
    TOKENIZER,
    SampleSet,
    ShardEntry,
    ShardIndex,
    read_digested,
    write_atomically,
)
from glassformer.data.shards.shard_writer import ShardWriter, interleaved
from glassformer.data.shards.workers import encoders
from glassformer.data.token_store import json_digest
from glassformer.errors import DataError
from glassformer.storage.manifest import digested
from glassformer.storage.regular_files import open_locked
from glassformer.text import TokenizerPair

JOURNAL = "progress.json"
"""Account of an unfinished preparation: finished shards, and where in the input to go on."""
LOCK = ".lock"
"""File that is locked during a preparation, and deleted at its end."""
FORMAT = 1
SHARD_TOKENS = 1 << 26


class Advanced(NamedTuple):
    """Progress of a preparation, after each chunk."""

    file: int
    """Number of the path that is read, from 0."""
    reading: str
    """First file of that path."""
    sizes: list[int]
    """Bytes of the first file of each path."""
    samples: int
    tokens: int
    shards: int


@dataclass(frozen=True)
class Preparation:
    """One preparation: the samples of a task into a folder."""

    task: str
    samples: Samples[Any]
    folder: Path
    text: dict[str, Any]
    """Settings of ``[text]``, which the tokenizer was learned with."""
    shard_tokens: int = SHARD_TOKENS
    processes: int = 1
    start_from: str | None = None
    """Fingerprint of the tokenizers of ``train.start_from``; None if they are learned."""

    def run(self) -> Iterator[Advanced]:
        """Write the shards, then their index. An unfinished preparation goes on after its last finished shard.

        The folder is ``locked``. Raises ``DataError`` for files that cannot be used, when no sample is left, and when
        the folder holds shards or the unfinished ones of other files, settings or tokenizers.
        """
        try:
            yield from self._run()
        except OSError as error:
            raise _unwritable(self.folder, error) from None

    def _run(self) -> Iterator[Advanced]:
        check_shard_tokens(self.shard_tokens)
        key = journal_key(self.task, self.samples, self.text, self.shard_tokens, self.start_from)
        journal = Journal(self.folder, key)
        if journal.is_complete():
            return
        journal.begin()
        written, skip = journal.written, journal.skip
        samples, paths = self.samples, self.samples.paths
        mark = Mark(written)
        writer = ShardWriter(
            self.folder,
            samples.dtype,
            [column not in samples.annotations for column in samples.columns],
            self.shard_tokens,
            samples.divisible,
            lambda: journal.write(writer, mark),
        )
        writer.finished, writer.skip = journal.finished, skip
        with encoders(samples, self.processes) as pool:
            try:
                for file in range(written.file, len(paths)):
                    self._enter(written, file)
                    chunks = islice(samples.chunks(paths[file]), written.chunks, None)
                    with closing(pool.encode(chunks, paths[file])) as encoded:
                        for chunk, result in encoded:
                            if chunk.opens:
                                mark.take(written)
                            for columns in samples.assemble(result, chunk, written):
                                rows = interleaved(columns)
                                written.sets[-1].samples += len(columns[0])
                                written.sets[-1].values += int(rows.offsets[-1] - rows.offsets[0])
                                writer.append(rows)
                            written.chunks += 1
                            yield self._advanced(written, len(writer.finished))
                self._finish(writer, written)
            except BaseException:
                writer.discard()
                raise
        journal.remove()

    def _advanced(self, written: Written, shards: int) -> Advanced:
        samples, values = (sum(getattr(one, name) for one in written.sets) for name in ("samples", "values"))
        reading = self.samples.files(self.samples.paths[written.file])[0]
        return Advanced(written.file, reading, self._sizes, samples, values, shards)

    @cached_property
    def _sizes(self) -> list[int]:
        return [_status(self.samples.files(path)[0]).st_size for path in self.samples.paths]

    def _enter(self, written: Written, file: int) -> None:
        """Begin a file, or go on in the one that ``written`` is in."""
        if len(written.account.files) <= file:
            path = self.samples.paths[file]
            written.account.files.append(FileReadReport(path))
            written.file, written.chunks, written.hashes = file, 0, 0
            name = self.samples.set_of(file)
            if name is not None:
                written.sets.append(SampleSet(name))
        self.samples.restore(self.folder, written)

    def _finish(self, writer: ShardWriter, written: Written) -> None:
        samples, account = self.samples, written.account
        if not account.kept:
            found = "; ".join(account.file_lines())
            raise DataError(f"no sample is left ({found}); give text, as UTF-8 (iconv -f LATIN1 -t UTF-8 converts)")
        samples.check(written)
        writer.close()
        ShardIndex(
            self.task,
            samples.columns,
            samples.dtype,
            samples.tokenizers.fingerprint,
            samples.settings,
            self.text,
            writer.finished,
            written.sets,
            account,
            written.names,
        ).write(self.folder)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make ``folder``, and hold it for one preparation; the lock ends with the process.

    A network file system locks only what is opened for writing, so a file is locked and not the folder.
    """
    busy = f"{folder}: another process prepares shards in it; wait for it, or name another one"
    try:
        os.makedirs(folder, exist_ok=True)
        lock = open_locked(folder / LOCK, busy)
    except OSError as error:
        raise _unwritable(folder, error) from None
    try:
        yield
    finally:
        with suppress(OSError):
            os.unlink(folder / LOCK)
        lock.close()


def _unwritable(folder: Path, error: OSError) -> DataError:
    """Error for what cannot be written, or for a limit of the system that is reached."""
    name, reason = error.filename or folder, error.strerror or error
    if error.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE):
        return DataError(f"{name}: cannot be used ({reason}); lower --processes, or raise the limits (ulimit -a)")
    return DataError(f"{name}: cannot be written ({reason}); make room, or name another folder")


class Mark:
    """Copy of ``Written`` before a chunk that begins with the beginning of a document.

    The reports of finished files do not change any more, so their copy is the list of them.
    """

    def __init__(self, written: Written) -> None:
        self.take(written)

    def take(self, written: Written) -> None:
        account = written.account
        last = [copy.deepcopy(file) for file in account.files[-1:]]
        files = account.files[:-1] + last
        copied = ReadReport(files, copy.deepcopy(account.source), copy.deepcopy(account.target))
        sets = written.sets[:-1] + [copy.copy(one) for one in written.sets[-1:]]
        self.written = Written(written.file, written.chunks, copied, sets, list(written.names), written.hashes)


class Journal:
    """The file ``progress.json`` of an unfinished preparation."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder, self.key, self.path = folder, key, folder / JOURNAL
        self.written, self.finished, self.skip = Written(), list[ShardEntry](), 0
        stored = read_journal(folder)
        if stored is not None:
            if stored["key"] != key:
                raise DataError(
                    f"{folder}: holds an unfinished preparation of other files, settings, train.start_from or sizes of "
                    "shards; delete the folder, or name another one"
                )
            self._restore(stored)
        else:
            refuse_complete(folder)

    def is_complete(self) -> bool:
        """True if only the journal is left to delete."""
        if not (self.folder / INDEX).exists():
            return False
        self.remove()
        return True

    def begin(self) -> None:
        """Record that a preparation has begun, unless one goes on."""
        if not self.path.exists():
            write_atomically(self.path, digested({"key": self.key, "shards": [], "written": None}))

    def write(self, writer: ShardWriter, mark: Mark) -> None:
        written = mark.written
        content = {**asdict(written), "account": written.account.to_json()}
        shards = [asdict(shard) for shard in writer.finished]
        write_atomically(self.path, digested({"key": self.key, "shards": shards, "written": content}))

    def remove(self) -> None:
        """Delete what a complete folder does not need; the journal last, since it says that there may be more."""
        for path in (*self.folder.glob("hashes-*"), self.path):
            path.unlink(missing_ok=True)

    def _restore(self, stored: dict[str, Any]) -> None:
        if stored["written"] is None:
            return
        values = dict(stored["written"])
        account = ReadReport.from_json(values.pop("account"))
        sets = [SampleSet(**one) for one in values.pop("sets")]
        self.written = Written(**values, account=account, sets=sets)
        self.finished = [ShardEntry(**shard) for shard in stored["shards"]]
        self.skip = sum(shard.values for shard in self.finished) - sum(one.values for one in sets)


def read_journal(folder: Path) -> dict[str, Any] | None:
    """The content of the journal in ``folder``; None if there is none."""
    path = folder / JOURNAL
    if not path.exists():
        return None
    stored = read_digested(path)
    if stored is None:
        raise DataError(f"{path}: is damaged: it does not match its own digest; delete the folder and prepare again")
    return stored


def journal_key(
    task: str, samples: Samples[Any], text: dict[str, Any], shard_tokens: int, start_from: str | None
) -> str:
    """SHA-256 over what decides the shards; of the input files their names, sizes and times of change."""
    files = [_status(file) for path in samples.paths for file in samples.files(path)]
    made_from = {
        "format": FORMAT,
        "task": task,
        "settings": samples.settings,
        "text": text,
        "tokenizer": samples.tokenizers.fingerprint,  # the stored one, if a preparation goes on
        "start_from": start_from,
        "shard_tokens": shard_tokens,
        "paths": samples.paths,
        "files": [[file.st_size, file.st_mtime_ns] for file in files],
    }
    return json_digest(made_from, sort_keys=True)


def _status(file: str) -> os.stat_result:
    """Size and time of an input file. Raises ``DataError`` that names it."""
    try:
        return regular(Path(file)).stat()
    except OSError as error:
        raise unreadable(Path(file), error) from None


def check_shard_tokens(shard_tokens: int) -> None:
    if not 1 <= shard_tokens <= MAX_VALUES:
        raise DataError(f"shard_tokens={shard_tokens}: a shard has 1 to {MAX_VALUES:,} tokens; give such a number")


def stored_tokenizers(folder: Path, learn: Callable[[], TokenizerPair]) -> TokenizerPair:
    """The tokenizers of an unfinished preparation in ``folder``; else those that ``learn`` returns, which are stored.

    The folder is ``locked``. Raises ``DataError`` if it holds shards already.
    """
    path = folder / TOKENIZER
    try:
        if read_journal(folder) is not None:
            return TokenizerPair.load(path)
        refuse_complete(folder)
        tokenizers = learn()
        tokenizers.save(path)
        return tokenizers
    except OSError as error:
        raise _unwritable(folder, error) from None


def refuse_complete(folder: Path) -> None:
    """Raise ``DataError`` if the folder holds a complete set of shards."""
    if (folder / INDEX).exists():
        raise DataError(f"{folder}: holds shards already; name another folder, or delete it")
