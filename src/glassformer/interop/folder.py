"""A folder for another library: written aside and renamed, so that it is whole, or not there."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glassformer.storage.checkpoint import UNFINISHED
from glassformer.errors import CheckpointError
from glassformer.storage.manifest import refusing


def refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise CheckpointError(f"{path}: exists already; name a new folder")


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """The folder to write into; it becomes ``path`` at the end, and goes where anything fails."""
    refuse_existing(path)
    unfinished = path.with_name(f"{UNFINISHED}{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with refusing(f"{path}: cannot be written"):
            unfinished.mkdir(parents=True)
            yield unfinished
            refuse_existing(path)
            os.rename(unfinished, path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
