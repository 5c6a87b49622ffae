"""Cache folder of a prepared corpus: named by a hash of its inputs, and either complete or absent.

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
import time
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from glassformer.data.config import DataConfig
from glassformer.data.pairs import Corpus, Side
from glassformer.data.parallel_text import find_files
from glassformer.data.read_report import ReadReport
from glassformer.data.readers import regular, unreadable
from glassformer.errors import DataError
from glassformer.storage.manifest import digested, parse_digested
from glassformer.text import TokenizerPair

FORMAT = 2  # version of the folder format; any other is rebuilt. Version 1 had no digests
INDEX = "index.json"
ABANDONED_SECONDS = 24 * 3600


def fingerprint(config: DataConfig, paths: list[str], tokenizers: TokenizerPair, alignments: Sequence[str] = ()) -> str:
    """SHA-256 over content, vocabularies and filters; file names do not enter. Reads every file once."""
    made_from: dict[str, Any] = {
        "files": [[found.form, *map(digest, found.files)] for found in (find_files(config, path) for path in paths)],
        "languages": [config.source, config.target],
        "vocabularies": [tokenizers.source.fingerprint, tokenizers.target.fingerprint],
        "filters": [config.max_length, config.max_length_ratio, config.drop_duplicates],
    }
    if config.validation_share:
        made_from["validation_share"] = config.validation_share
    if alignments:
        made_from["alignments"] = [digest(regular(Path(file))) for file in alignments]
    return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()


def corpus_folder(config: DataConfig, key: str) -> Path:
    """Where the corpus of that fingerprint belongs, whether it is there or not."""
    return folder_of(config.cache, key)


def folder_of(cache: str, key: str) -> Path:
    """Where what has that fingerprint belongs under ``cache``; empty: the user's cache folder."""
    return _cache_root(cache) / f"{key[:32]}-{FORMAT}"


def load(folder: Path, key: str, paths: list[str]) -> Corpus | None:
    """The corpus in ``folder``; ``None`` when there is none or it is damaged."""
    try:
        index = verified_index(folder, key)
        if index is None:
            return None
        account = account_of(index, paths)
        names = ["source", "target", *(["links"] if "links" in index["dtypes"] else [])]
        sides = [Side.open(folder, name, index["dtypes"][name]) for name in names]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if any(len(side.offsets) != account.kept + 1 or side.offsets[-1] != len(side.ids) for side in sides):
        return None
    links = sides[2] if len(sides) > 2 else None
    return Corpus(sides[0], sides[1], account, key, links, content_digest(index))


def verified_index(folder: Path, key: str) -> dict[str, Any] | None:
    """The index that ``commit`` wrote, after checking the SHA-256 of every file, which reads each file once.

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
        stacklevel=4,
    )
    return None


def content_digest(index: dict[str, Any]) -> str:
    """SHA-256 over the token ids of an index; equal if and only if the token ids are equal."""
    return hashlib.sha256(json.dumps([index["dtypes"], index["files"]], sort_keys=True).encode()).hexdigest()


def joint_digest(digests: Iterable[str]) -> str:
    """SHA-256 over the content digests of several corpora or streams, in order."""
    return hashlib.sha256(json.dumps(list(digests)).encode()).hexdigest()


def account_of(index: dict[str, Any], paths: list[str]) -> ReadReport:
    """The account of an index. The files have the names they have now: when it was made they may have had others."""
    account = ReadReport.from_json(index["account"])
    for file, path in zip(account.files, paths, strict=True):
        file.path = path
    return account


def begin(folder: Path) -> Path:
    """A new empty folder beside ``folder``, on the same file system. Removes a damaged ``folder``, and dead builds."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists():
        shutil.rmtree(folder)
    for build in folder.parent.glob(f".{folder.name}.*"):
        with suppress(OSError):
            newest = max(file.stat().st_mtime for file in [build, *build.iterdir()])
            if time.time() - newest > ABANDONED_SECONDS:
                shutil.rmtree(build)
    return Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))


def commit(
    build: Path,
    folder: Path,
    key: str,
    dtypes: dict[str, str],
    account: ReadReport,
    measures: dict[str, int] | None = None,
) -> None:
    """Describe the files of ``build``, then give it its name. When another process was faster, its folder stays."""
    files = {file.name: digest(file) for file in sorted(build.iterdir())}
    described = {"dtypes": dtypes, "account": account.to_json(), "files": files, **(measures or {})}
    (build / INDEX).write_bytes(digested({"format": FORMAT, "fingerprint": key, **described}))
    try:
        os.rename(build, folder)
    except OSError:
        if not (folder / INDEX).is_file():
            raise
        shutil.rmtree(build)


def unwritable(folder: Path, error: OSError) -> DataError:
    return DataError(
        f"{folder}: the token cache cannot be written ({error.strerror or error}); "
        "set data.cache to a folder that is writable and has room"
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
        raise DataError(f"the user's home folder is not known ({error}); set data.cache to a folder") from None


def digest(path: Path) -> str:
    """SHA-256 of the file's bytes."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error) from None
