"""Hugging Face's classes, loading a folder as anyone would, but no code and no pickle from it."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from glassformer.config import CheckpointError
from glassformer.interop.optional import required

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
        raise CheckpointError(f"{folder}: transformers cannot load it ({str(error).splitlines()[0]})") from None


def loaded_tokenizer(folder: Path) -> Any:
    return _loaded_beside("AutoTokenizer", "tokenizer", folder)


def loaded_processor(folder: Path) -> Any:
    return _loaded_beside("AutoImageProcessor", "image processor", folder)


def _loaded_beside(loader: str, what: str, folder: Path) -> Any:
    try:
        with quiet():
            return getattr(transformers, loader).from_pretrained(folder, **SAFE)
    except (OSError, ValueError, ImportError, KeyError) as error:
        said = " ".join(str(error).split())
        raise CheckpointError(f"{folder}: transformers cannot load its {what} ({said})") from None


def refuse_other_ids(folder: Path, text: str, ours: list[int], found: list[int]) -> None:
    """A ``CheckpointError`` where the two tokenizers cut ``text`` otherwise."""
    if ours != found:
        raise CheckpointError(f"{folder}: {text!r} is {ours} here and {found} there; nothing was written")
