"""Conversion to and from other libraries: Hugging Face, CTranslate2 and ONNX, with parity checks."""

import importlib
import sys
from types import ModuleType

from glassformer.errors import ConfigError


def require(library: str, extra: str) -> ModuleType:
    """Import ``library``; ``ConfigError`` names the extra that installs it."""
    if library == "transformers":
        _without_broken_vision()
    try:
        return importlib.import_module(library)
    except ImportError:
        raise ConfigError(f"{library} is not installed; pip install 'glassformer[{extra}]'") from None


def _without_broken_vision() -> None:
    """Hide a torchvision built for another torch, which would make every import from transformers fail."""
    try:
        importlib.import_module("torchvision")
    except ImportError:
        pass
    except RuntimeError:
        sys.modules["torchvision"] = None  # type: ignore[assignment]
