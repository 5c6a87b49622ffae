"""Folders of other libraries: what can be exported there, and how a folder is written whole or not at all."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glassformer.errors import CheckpointError, ConfigError
from glassformer.interop.families import KINDS
from glassformer.predict.loading import load_checked
from glassformer.predict.translator import Translator
from glassformer.storage.checkpoint import UNFINISHED
from glassformer.storage.manifest import refusing
from glassformer.storage.run_folder import resolve

TRANSLATING = "encoder_decoder"
"""The kind of model that ``load_translator`` takes."""


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


def load_translator(run: str | Path) -> tuple[Path, Translator]:
    """The checkpoint of ``run`` and its translator; ``ConfigError`` for a model of another kind."""
    path = resolve(run)
    kind = load_checked(path).config.get("model", {}).get("kind")
    if kind != TRANSLATING:
        way = (
            "use --to huggingface"
            if kind in KINDS
            else f"--to huggingface takes {', '.join(KINDS)} alone; use the run itself"
        )
        raise ConfigError(f"{path}: model.kind={kind!r} is not exported there; {TRANSLATING} is; {way}")
    return path, Translator.load(path)
