"""Folders of other libraries: their JSON files, and the translators that are exported into them."""

import json
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError, ConfigError
from glassformer.interop.families import KINDS
from glassformer.predict.loading import load_checked
from glassformer.predict.translator import Translator
from glassformer.storage.run_folder import resolve

TRANSLATION_KIND = "encoder_decoder"
"""Kind of model that CTranslate2 and ONNX exports support."""
SETTINGS_FILE = "glassformer.json"
"""File of our own settings in an exported folder, with which an import restores the original run."""


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


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in ``path``."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); copy the entire folder") from None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise CheckpointError(f"{path}: is not a JSON object; copy it again")
    return document


def read_optional(path: Path) -> dict[str, Any]:
    """Read the JSON object in ``path``; empty if the file does not exist."""
    return read_json(path) if path.is_file() else {}


def write_json(path: Path, document: Any, indent: int = 1) -> None:
    path.write_text(json.dumps(document, ensure_ascii=False, indent=indent) + "\n", encoding="utf-8")


def generation_file(folder: Path) -> Path:
    """File with the settings of generation: ``config.json`` in older folders."""
    path = folder / "generation_config.json"
    return path if path.is_file() else folder / "config.json"


def generation_settings(folder: Path) -> dict[str, Any]:
    """Settings of generation of ``folder``."""
    return read_json(generation_file(folder))
