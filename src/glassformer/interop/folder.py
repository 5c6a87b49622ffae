"""Export folders: written completely or not at all, from runs that the other library supports."""

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

TRANSLATION_KIND = "encoder_decoder"
"""Kind of model that CTranslate2 and ONNX exports support."""
SETTINGS_FILE = "glassformer.json"
"""File of our own settings in an exported folder, with which an import restores the original run."""


def refuse_existing(path: Path) -> None:
    """Raise ``CheckpointError`` if ``path`` exists."""
    if os.path.lexists(path):
        raise CheckpointError(f"{path}: exists already; name a new folder")


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``path`` at the end, and is removed if anything fails."""
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
    """Load the checkpoint path and the translator of ``run``; ``ConfigError`` for another kind of model."""
    path = resolve(run)
    kind = load_checked(path).config.get("model", {}).get("kind")
    if kind != TRANSLATION_KIND:
        remedy = (
            "use --to huggingface"
            if kind in KINDS
            else f"--to huggingface takes {', '.join(KINDS)} alone; use the run itself"
        )
        raise ConfigError(f"{path}: model.kind={kind!r} is not exported there; {TRANSLATION_KIND} is; {remedy}")
    return path, Translator.load(path)
