"""The manifest: what makes a checkpoint folder whole. Size and SHA-256 of every file in it, and a digest of itself."""

import errno
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from glassformer.errors import CheckpointError
from glassformer.storage.regular_files import MEGABYTE, UnsuitableFileError, open_regular, read_regular

MANIFEST = "manifest.json"
FORMAT, VERSION = "glassformer checkpoint", 1
Entry = dict[str, int | str]
"""Size and SHA-256 of a file."""
LARGEST_MANIFEST = MEGABYTE
MAX_VALUES, MAX_CONTAINERS = 4_000_000, 700_000
"""Maximum number of values in a JSON file, and of its lists and objects, which take the most time and memory."""


def write_manifest(folder: Path, files: Mapping[str, Entry]) -> None:
    """Describe ``files``, measured by ``measure``, and flush the description to the disk."""
    (folder / MANIFEST).write_bytes(digested({"format": FORMAT, "version": VERSION, "files": dict(files)}))
    sync(folder / MANIFEST)


def check_manifest(folder: Path, required: Collection[str]) -> list[str]:
    """Check that the folder holds what its manifest lists, bit for bit, and nothing else; return the names.

    ``CheckpointError`` names the first file that is missing, unlisted or changed.
    """
    listed = check_sizes(folder, required)
    with refusing(f"{folder}: cannot be read"):
        for name in sorted(listed):
            if listed[name] != measure(folder / name, folder):
                raise _damaged(folder, name)
        return sorted(listed)


def check_sizes(folder: Path, required: Collection[str]) -> dict[str, Any]:
    """Check names, types and sizes of the files without hashing them; return the entries of the manifest.

    Links out of the folder, pipes and devices are refused.
    """
    with refusing(f"{folder}: cannot be read"):
        listed = _read_manifest(folder)
        present = _files_in(folder)
        if missing := sorted((set(required) | set(listed)) - present):
            raise CheckpointError(f"{folder}: {missing[0]} is missing; copy the whole folder again")
        if unlisted := sorted(present - set(listed)):
            raise CheckpointError(f"{folder}: {unlisted[0]} is not listed in {MANIFEST}; move it out of the folder")
        for name in sorted(listed):
            with open_regular(folder / name, folder) as file:
                size = os.fstat(file.fileno()).st_size
            if not isinstance(listed[name], dict) or listed[name].get("bytes") != size:
                raise _damaged(folder, name)
        return listed


def _damaged(folder: Path, name: str) -> CheckpointError:
    message = f"{name} is damaged: its size or SHA-256 is not the one in {MANIFEST}; copy it again"
    return CheckpointError(f"{folder}: {message}")


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn an error of the file system into a ``CheckpointError`` of one line: ``what``: the reason."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{what}: {_reason(error)}") from None


def sync(path: Path) -> None:
    """Return once the file, or the folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: OSError | SafetensorError) -> str:
    if isinstance(error, UnsuitableFileError):
        return f"{Path(error.filename).name} {error}"
    # safetensors reports errors of the system as text: "I/O error: No space left on device (os error 28)"
    match = re.search(r"os error (\d+)", str(error))
    code = error.errno if isinstance(error, OSError) else int(match[1]) if match else None
    if code in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full; free some space, or name another folder"
    return (os.strerror(code) if code else " ".join(str(error).split())).lower()


def parse_object(data: bytes, max_containers: int = MAX_CONTAINERS) -> dict[str, Any] | None:
    """Parse ``data`` as a JSON object; None if it is not one, repeats a key, or has too many values."""
    if data.count(b",") > MAX_VALUES or data.count(b"[") + data.count(b"{") > max_containers:
        return None
    try:
        document = json.loads(data.decode(), object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    present = dict(pairs)
    if len(present) < len(pairs):
        raise ValueError("a key is repeated")
    return present


def digested(content: dict[str, Any]) -> bytes:
    """Serialize ``content`` with a SHA-256 digest of itself. Later versions keep this format."""
    return _canonical({**content, "digest": hashlib.sha256(_canonical(content)).hexdigest()})


def parse_digested(data: bytes) -> dict[str, Any] | None:
    """Parse what ``digested`` wrote; None if a single bit differs."""
    content = parse_object(data) or {}
    content.pop("digest", None)
    return content if digested(content) == data else None  # white space counts too


def _canonical(content: dict[str, Any]) -> bytes:
    try:
        return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()
    except RecursionError:  # nested deeper than anything written here
        return b""


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        data = read_regular(folder / MANIFEST, LARGEST_MANIFEST, folder)
    except (FileNotFoundError, NotADirectoryError):
        if not folder.is_dir():
            raise CheckpointError(f"{folder}: no such folder; name a checkpoint folder") from None
        raise CheckpointError(
            f"{folder}: {MANIFEST} is missing, so the checkpoint is incomplete; copy it again"
        ) from None
    content = parse_digested(data)
    if content is None:
        raise CheckpointError(f"{folder}: {MANIFEST} is damaged: it does not match its own digest; copy it again")
    version, files = content.get("version"), content.get("files")
    if content.get("format") == FORMAT and type(version) is int and version > VERSION:
        raise CheckpointError(
            f"{folder}: {MANIFEST} has format version {version}, newer than {VERSION}; upgrade glassformer"
        )
    if content.get("format") != FORMAT or type(version) is not int or version != VERSION or not isinstance(files, dict):
        raise CheckpointError(
            f"{folder}: {MANIFEST} is not that of a {FORMAT} of version {VERSION}; restore the original"
        )
    return files


def _files_in(folder: Path) -> set[str]:
    def fail(error: OSError) -> None:
        raise error

    names = {
        (Path(root) / name).relative_to(folder).as_posix()
        for root, _, files in os.walk(folder, onerror=fail)
        for name in files
    }
    return names - {MANIFEST}


def measure(path: Path, folder: Path) -> Entry:
    """Size and SHA-256 of a file of ``folder``."""
    with open_regular(path, folder) as stream:
        return {"bytes": os.fstat(stream.fileno()).st_size, "sha256": hashlib.file_digest(stream, "sha256").hexdigest()}
