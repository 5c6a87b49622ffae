"""Names of a package that are imported when first used, so that who needs few of them does not wait for all."""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def imported_later(package: str, homes: dict[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of ``package`` (PEP 562); ``homes`` says in which of its modules each name is."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return find
