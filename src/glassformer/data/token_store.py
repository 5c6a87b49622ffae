"""Token ids on disk: in a cache folder named by a hash of its inputs, which is either complete or absent.

A build writes under a temporary name and renames at the end, so a killed build is never mistaken for a corpus. The
index holds the SHA-256 of every file and a digest of itself. All are verified once, when the folder is opened. A
mismatch gives a warning with the name of the file, and the folder is rebuilt. Later changes to a file, while it is
mapped into memory, are not detected.
"""

import hashlib
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedIOBase
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from glassformer.data.read_report import ReadReport
from glassformer.data.readers import unreadable
from glassformer.errors import DataError
from glassformer.storage.manifest import digested, parse_digested

FORMAT = 2  # version of the folder format; any other is rebuilt. Version 1 had no digests
INDEX = "index.json"
ABANDONED_SECONDS = 24 * 3600


T = TypeVar("T")
Ids = Sequence[int] | NDArray[np.integer]


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths, one after the other: row ``i`` is ``values[offsets[i]:offsets[i + 1]]``."""

    values: NDArray[np.integer]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> NDArray[np.integer]:
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Values of each row."""
        return np.diff(self.offsets).astype(np.int32)

    def take(self, rows: NDArray[np.integer]) -> "Ragged":
        """A copy of these rows, in the order of ``rows``."""
        begins = self.offsets[rows]
        lengths = self.offsets[rows + 1] - begins
        return Ragged(self.values[ranges(begins, lengths)], offsets_of(lengths))

    @classmethod
    def joined(cls, parts: Sequence["Ragged"]) -> Self:
        """The rows of all ``parts``."""
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(np.concatenate([part.values for part in parts]), offsets_of(lengths))

    @classmethod
    def of(cls, rows: Sequence[Ids]) -> Self:
        """Rows laid end to end."""
        values = np.concatenate([np.empty(0, np.int64), *rows], dtype=np.int64, casting="unsafe")
        return cls(values, offsets_of(np.fromiter(map(len, rows), np.int64, len(rows))))

    @classmethod
    def open(cls, folder: Path, name: str, dtype: str) -> Self:
        """Map the files of ``name`` into memory.

        ``asarray``: slicing a plain view of the mapping costs a fifth of slicing the ``memmap`` itself.
        """
        return cls(
            np.asarray(np.memmap(folder / f"{name}.ids", dtype, "r")),
            np.asarray(np.memmap(folder / f"{name}.offsets", "<i8", "r")),
        )


def offsets_of(lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    """Bounds of rows of these ``lengths``, which lie end to end."""
    return np.concatenate([np.zeros(1, np.int64), lengths.cumsum()])


def ranges(begins: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers ``begins[i]`` to ``begins[i] + lengths[i] - 1`` of each i, end to end."""
    ends = lengths.cumsum()
    return np.repeat(begins - ends + lengths, lengths) + np.arange(int(ends[-1]) if len(ends) else 0)


class RaggedWriter:
    """Writer of the two files that ``Ragged.open`` maps into memory."""

    def __init__(self, values: BufferedIOBase, offsets: BufferedIOBase, dtype: str) -> None:
        self.values, self.offsets, self.dtype = values, offsets, dtype
        self.total = 0
        self.write_offset(0)

    def append(self, rows: Sequence[Sequence[int]]) -> NDArray[np.integer]:
        """Write the rows and return their values end to end."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        values = np.fromiter(chain.from_iterable(rows), self.dtype, int(lengths.sum()))
        self.values.write(values.tobytes())
        self.offsets.write((self.total + lengths.cumsum()).astype("<i8").tobytes())
        self.total += len(values)
        return values

    def write_offset(self, offset: int) -> None:
        self.offsets.write(np.array([offset], "<i8").tobytes())


@contextmanager
def ragged_writer(folder: Path, name: str, dtype: str) -> Iterator[RaggedWriter]:
    with (folder / f"{name}.ids").open("w+b") as values, (folder / f"{name}.offsets").open("wb") as offsets:
        yield RaggedWriter(values, offsets, dtype)


def ids_dtype(vocab_size: int) -> str:
    """Smallest number type for the ids of a vocabulary."""
    return "<u2" if vocab_size <= 1 << 16 else "<i4"


class Contents(NamedTuple):
    """Description of a finished build: the number type of each pair of files, the report, further counts."""

    dtypes: dict[str, str]
    account: ReadReport
    measures: dict[str, int]


def open_or_build(
    cache: str,
    key: str,
    open_folder: Callable[[Path, dict[str, Any]], T | None],
    build: Callable[[Path], Contents],
) -> T:
    """Open the token ids with the fingerprint ``key``; if they are missing or damaged, build them first.

    ``open_folder`` takes the folder and its verified index, and returns None if its files do not fit each other.
    ``build`` writes into the empty folder that it is called with.

    Raises ``DataError`` when the cache cannot be written or changes while it is read.
    """
    folder = _folder_of(cache, key)
    found = _open_verified(folder, key, open_folder)
    if found is None:
        try:
            _build(folder, key, build)
        except OSError as error:
            raise _unwritable(folder.parent, error) from None
        found = _open_verified(folder, key, open_folder)
    if found is None:
        raise DataError(
            "the token cache changes while it is read",
            where=str(folder),
            remedy="try again",
            setting="data.cache",
            advice="set data.cache to a folder of your own",
        )
    return found


def _open_verified(folder: Path, key: str, open_folder: Callable[[Path, dict[str, Any]], T | None]) -> T | None:
    try:
        index = _verified_index(folder, key)
        return None if index is None else open_folder(folder, index)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _build(folder: Path, key: str, build: Callable[[Path], Contents]) -> None:
    unfinished = _begin(folder)
    try:
        _commit(unfinished, folder, key, build(unfinished))
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def _folder_of(cache: str, key: str) -> Path:
    """The folder of the fingerprint ``key`` under ``cache``; empty: the user's cache folder."""
    return _cache_root(cache) / f"{key[:32]}-{FORMAT}"


def _verified_index(folder: Path, key: str) -> dict[str, Any] | None:
    """The index that ``_commit`` wrote, after checking the SHA-256 of every file, which reads each file once.

    ``None`` if the folder does not exist, or if a file is damaged. A warning names the damaged file.
    """
    if not folder.is_dir():
        return None
    index = _read_index(folder, key)
    damaged = (
        [name for name, sha256 in index["files"].items() if _sha256(folder / name) != sha256] if index else [INDEX]
    )
    if not damaged:
        return index
    warnings.warn(
        f"{folder / damaged[0]}: is damaged (SHA-256 mismatch); rebuilding the token cache",
        stacklevel=5,
    )
    return None


def content_digest(index: dict[str, Any]) -> str:
    """SHA-256 over the token ids of an index; equal if and only if the token ids are equal."""
    return json_digest([index["dtypes"], index["files"]], sort_keys=True)


def joint_digest(digests: Iterable[str]) -> str:
    """SHA-256 over the content digests of several corpora or streams, in order."""
    return json_digest(list(digests))


def account_of(index: dict[str, Any], paths: list[str]) -> ReadReport:
    """The account of an index. The files have the names they have now: when it was made they may have had others."""
    account = ReadReport.from_json(index["account"])
    for file, path in zip(account.files, paths, strict=True):
        file.path = path
    return account


def _begin(folder: Path) -> Path:
    """A new empty folder beside ``folder``, on the same file system. Removes a damaged ``folder``, and dead builds.

    The age of a build is its distance from the new folder. Both times are of the file system, which on a network is
    another machine's, so that the clock of this one does not matter.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists():
        shutil.rmtree(folder)
    own = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    now = own.stat().st_mtime
    for build in folder.parent.glob(f".{folder.name}.*"):
        with suppress(OSError):
            newest = max(file.stat().st_mtime for file in [build, *build.iterdir()])
            if now - newest > ABANDONED_SECONDS:
                shutil.rmtree(build)
    return own


def _commit(build: Path, folder: Path, key: str, contents: Contents) -> None:
    """Describe the files of ``build``, then give it its name. When another process was faster, its folder stays."""
    files = {file.name: digest(file) for file in sorted(build.iterdir())}
    described = {"dtypes": contents.dtypes, "account": contents.account.to_json(), "files": files}
    (build / INDEX).write_bytes(digested({"format": FORMAT, "fingerprint": key, **described, **contents.measures}))
    try:
        os.rename(build, folder)
    except OSError:
        if not (folder / INDEX).is_file():
            raise
        shutil.rmtree(build)


def _unwritable(folder: Path, error: OSError) -> DataError:
    return DataError(
        f"the token cache cannot be written ({error.strerror or error})",
        where=str(folder),
        remedy="make that folder writable, with room in it",
        setting="data.cache",
        advice="set data.cache to another",
    )


def _read_index(folder: Path, key: str) -> dict[str, Any] | None:
    try:
        index = parse_digested((folder / INDEX).read_bytes())
    except OSError:
        return None
    of_key = index is not None and (index.get("format"), index.get("fingerprint")) == (FORMAT, key)
    return index if of_key else None


def _sha256(path: Path) -> str | None:
    try:
        return digest(path)
    except DataError:  # missing or unreadable
        return None


def _cache_root(cache: str) -> Path:
    try:
        if cache:
            return Path(cache).expanduser()
        base = os.environ.get("XDG_CACHE_HOME", "")
        return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "glassformer"
    except RuntimeError as error:
        raise DataError(
            f"the user's home folder is not known ({error})",
            remedy="name a folder in the environment variable XDG_CACHE_HOME",
            setting="data.cache",
            advice="set data.cache to one",
        ) from None


def json_digest(value: Any, sort_keys: bool = False) -> str:
    """SHA-256 of a value as JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=sort_keys).encode()).hexdigest()


def digest(path: Path) -> str:
    """SHA-256 of the file's bytes."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error) from None
