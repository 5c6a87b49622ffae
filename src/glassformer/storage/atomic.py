"""Atomic changes of a folder of checkpoints: written or deleted aside, renamed as one, so each is whole or absent."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glassformer.errors import CheckpointError
from glassformer.storage.manifest import MANIFEST, refusing, sync

UNFINISHED, ASIDE = ".tmp-", ".old-"  # being written or deleted; waiting while its replacement moves in


def clear_leftovers(folder: Path) -> None:
    """Remove what killed saves and deletions left in ``folder``, and put back a checkpoint set aside but not replaced.

    Only for a folder that no other process is saving into.
    """
    for item in sorted(folder.iterdir()):
        if item.name.startswith(ASIDE):
            end_replacement(item.with_name(item.name.removeprefix(ASIDE)))
        elif item.name.startswith(UNFINISHED):
            shutil.rmtree(item) if item.is_dir() else item.unlink()


def delete_checkpoint(path: Path) -> None:
    """Delete a checkpoint in such a way that, killed half-way, it does not look like a damaged one."""
    unfinished = unfinished_path(path)
    os.rename(path, unfinished)
    shutil.rmtree(unfinished)


def write_atomically(path: Path, data: bytes) -> None:
    """Write the file so that it is, at every moment, either the old one or the new one."""
    unfinished = unfinished_path(path)
    with refusing(f"{path}: cannot be written"):
        try:
            unfinished.write_bytes(data)
            sync(unfinished)
            os.replace(unfinished, path)
            sync(path.parent)
        finally:
            unfinished.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``path`` at the end, and is removed if anything fails."""
    refuse_existing(path)
    unfinished = unfinished_path(path)
    try:
        with refusing(f"{path}: cannot be written"):
            unfinished.mkdir(parents=True)
            yield unfinished
            refuse_existing(path)
            os.rename(unfinished, path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def unfinished_path(path: Path) -> Path:
    """Name beside ``path`` under which it is written or deleted; ``clear_leftovers`` removes what a kill left there."""
    return path.with_name(f"{UNFINISHED}{path.name}-{os.getpid()}-{secrets.token_hex(4)}")


def refuse_existing(path: Path) -> None:
    """Raise ``CheckpointError`` if ``path`` exists."""
    if os.path.lexists(path):
        raise CheckpointError(f"{path}: exists already; name a new folder")


def refuse_target(path: Path, replace: bool) -> None:
    end_replacement(path)
    if not replace:
        refuse_existing(path)
    elif os.path.lexists(path) and not (path / MANIFEST).is_file():  # such as a home folder, named by mistake
        raise CheckpointError(f"{path}: exists and is no checkpoint, so it is not replaced; name a new folder")


def move_in(unfinished: Path, path: Path) -> None:
    aside = path.with_name(ASIDE + path.name)
    replaced = path.exists()
    if replaced:
        os.rename(path, aside)
    try:
        os.rename(unfinished, path)
        sync(path.parent)
    except BaseException:
        if path.exists():
            os.rename(path, unfinished)
        if replaced:
            os.rename(aside, path)
        raise
    if replaced:
        shutil.rmtree(aside, ignore_errors=True)


def end_replacement(path: Path) -> None:
    """Finish what a kill in the middle of ``move_in`` left: the old checkpoint comes back unless the new one is in."""
    aside = path.with_name(ASIDE + path.name)
    if aside.exists() and path.exists():
        shutil.rmtree(aside)
    elif aside.exists():
        os.rename(aside, path)
