"""Hugging Face's classes, loading a folder as anyone would, but no code and no pickle from it."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from glassformer.errors import CheckpointError
from glassformer.interop.optional import required
from glassformer.interop.tokenizer_json import way_to_a_tokenizer

transformers = required("transformers", "huggingface")
transformers.utils.logging.disable_progress_bar()

SAFE = {"local_files_only": True, "trust_remote_code": False}


@contextmanager
def quiet() -> Iterator[None]:
    """What they say is about themselves."""
    before = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers.utils.logging.set_verbosity(before)


def loaded(loader: str, folder: Path) -> Any:
    """By the class ``loader``, in float32."""
    try:
        with quiet():
            auto = getattr(transformers, loader)
            return auto.from_pretrained(folder, dtype=torch.float32, use_safetensors=True, **SAFE).eval()
    except (OSError, KeyError, ValueError, RuntimeError) as error:
        said = " ".join(str(error).split())[:300]
        raise CheckpointError(f"{folder}: transformers cannot load the model ({said}); save it again") from None


def loaded_tokenizer(folder: Path) -> Any:
    try:
        with quiet():
            return transformers.AutoTokenizer.from_pretrained(folder, **SAFE)
    except Exception:  # their classes check little of what they read
        raise _no_tokenizer(folder) from None


def read_by(reader: Any, folder: Path, text: str | list[str], **options: Any) -> Any:
    """What the tokenizer ``reader`` of ``folder`` makes of ``text``."""
    try:
        with quiet():
            return reader(text, **options)
    except Exception:  # the compiled library raises nothing narrower
        raise _no_tokenizer(folder) from None


def loaded_processor(folder: Path) -> Any:
    try:
        with quiet():
            return transformers.AutoImageProcessor.from_pretrained(folder, **SAFE)
    except Exception:
        fault = "preprocessor_config.json is missing or damaged, so AutoImageProcessor cannot read a picture"
        raise CheckpointError(f"{folder}: {fault}; copy it again") from None


def _no_tokenizer(folder: Path) -> CheckpointError:
    missing = [name for name in ("tokenizer.json", "tokenizer_config.json") if not (folder / name).is_file()]
    fault = f"has no {' and no '.join(missing)}" if missing else "its tokenizer's files are damaged"
    return CheckpointError(f"{folder}: {fault}, so AutoTokenizer cannot read a text; {way_to_a_tokenizer(folder)}")


def refuse_other_ids(folder: Path, text: str, ours: list[int], found: list[int]) -> None:
    """A ``CheckpointError`` where the two tokenizers cut ``text`` otherwise."""
    if ours != found:
        raise CheckpointError(f"{folder}: {text!r} is {ours} here and {found} there; nothing was written")
