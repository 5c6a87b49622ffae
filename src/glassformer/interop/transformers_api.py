"""Load folders with the classes of transformers, but run no code and read no pickle from them."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from glassformer.errors import CheckpointError
from glassformer.interop import require
from glassformer.interop.tokenizer_json import tokenizer_remedy

transformers = require("transformers", "huggingface")
transformers.utils.logging.disable_progress_bar()

SAFE = {"local_files_only": True, "trust_remote_code": False}


@contextmanager
def quiet() -> Iterator[None]:
    """Silence logging and warnings of transformers."""
    before = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers.utils.logging.set_verbosity(before)


def load_model(loader: str, folder: Path) -> Any:
    """Load the model in ``folder`` with the class ``loader``, in float32."""
    try:
        with quiet():
            auto = getattr(transformers, loader)
            return auto.from_pretrained(folder, dtype=torch.float32, use_safetensors=True, **SAFE).eval()
    except (OSError, KeyError, ValueError, RuntimeError) as error:
        message = " ".join(str(error).split())[:300]
        raise CheckpointError(f"{folder}: transformers cannot load the model ({message}); save it again") from None


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer in ``folder``; ``CheckpointError`` names missing files."""
    try:
        with quiet():
            return transformers.AutoTokenizer.from_pretrained(folder, **SAFE)
    except Exception:  # their classes check little of what they read
        raise _no_tokenizer(folder) from None


def read_by(reader: Any, folder: Path, text: str | list[str], **options: Any) -> Any:
    """Tokenize ``text`` with the tokenizer ``reader`` of ``folder``."""
    try:
        with quiet():
            return reader(text, **options)
    except Exception:  # the compiled library raises nothing narrower
        raise _no_tokenizer(folder) from None


def load_processor(folder: Path) -> Any:
    """Load the image processor in ``folder``."""
    try:
        with quiet():
            return transformers.AutoImageProcessor.from_pretrained(folder, **SAFE)
    except Exception:
        error = "preprocessor_config.json is missing or damaged, so AutoImageProcessor cannot read a picture"
        raise CheckpointError(f"{folder}: {error}; copy it again") from None


def _no_tokenizer(folder: Path) -> CheckpointError:
    missing = [name for name in ("tokenizer.json", "tokenizer_config.json") if not (folder / name).is_file()]
    error = f"has no {' and no '.join(missing)}" if missing else "its tokenizer's files are damaged"
    return CheckpointError(f"{folder}: {error}, so AutoTokenizer cannot read a text; {tokenizer_remedy(folder)}")


def refuse_other_ids(folder: Path, text: str, our_ids: list[int], their_ids: list[int]) -> None:
    """Raise ``CheckpointError`` if the two tokenizers give ``text`` different ids."""
    if our_ids != their_ids:
        raise CheckpointError(f"{folder}: {text!r} is {our_ids} here and {their_ids} there; nothing was written")
