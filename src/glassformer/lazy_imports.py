"""Lazy imports: names of a package that are imported when first used."""

import sys
from importlib import import_module

TYPE_CHECKING = False  # not from typing: until the command's ``main`` runs, Ctrl-C cannot be handled
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def lazy_attributes(package: str, homes: dict[str, str]) -> "tuple[Callable[[str], Any], Callable[[], list[str]]]":
    """``__getattr__`` and ``__dir__`` of ``package`` (PEP 562); ``homes`` maps each name to its module.

    A name that maps to itself is the module: importing a module makes it an attribute of its package.
    """

    def find(name: str) -> "Any":
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(f"{package}.{homes[name]}")
        return home if homes[name] == name else getattr(home, name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return find, names
