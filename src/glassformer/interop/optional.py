"""The libraries of other people's that interop speaks to, where they are installed."""

import importlib
import sys
from types import ModuleType

from glassformer.errors import ConfigError


def required(library: str, extra: str) -> ModuleType:
    """The module ``library``; a ``ConfigError`` names the extra that brings it."""
    if library == "transformers":
        _without_broken_vision()
    try:
        return importlib.import_module(library)
    except ImportError:
        raise ConfigError(f"{library} is not installed; pip install 'glassformer[{extra}]'") from None


def _without_broken_vision() -> None:
    """A torchvision built for another torch would keep every model of transformers from loading, those of text too."""
    try:
        importlib.import_module("torchvision")
    except ImportError:
        pass
    except RuntimeError:
        sys.modules["torchvision"] = None  # type: ignore[assignment]
