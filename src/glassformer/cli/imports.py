"""Import PyTorch without a part of it that no inference uses."""

import sys
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_META_KERNELS = "torch._meta_registrations"
"""Kernels, written in Python, of tensors without data. PyTorch's compilers use them."""
_COMPILERS = ("torch._dynamo", "torch._inductor")


def postpone_meta_kernels() -> None:
    """Let PyTorch be imported without its kernels for meta tensors: a quarter of the time.

    They are executed when one of their names is used, or before a compiler of PyTorch is imported. Until then,
    operations on meta tensors have the kernels that are written in C++: enough to build every model of this package.
    If PyTorch is imported already, this does nothing.
    """
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, _PostponingLoader())


class _PostponingLoader(Loader):
    """Finder and loader of the module. ``importlib.util.LazyLoader`` executes it at its second import statement."""

    _module: ModuleType | None = None
    """The module while it is postponed."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name in _COMPILERS:
            self._execute()
        if name != _META_KERNELS:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            self._loader, spec.loader = spec.loader, self
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """Leave ``module`` empty, with a ``__getattr__`` (PEP 562) that executes it."""

        def attribute(name: str) -> Any:
            if name.startswith("__"):  # such as __path__, which the import system looks for in every module
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            self._execute()
            return getattr(module, name)

        self._module = module
        module.__getattr__ = attribute  # type: ignore[method-assign]

    def _execute(self) -> None:
        module, self._module = self._module, None
        if module is not None:
            del module.__getattr__
            self._loader.exec_module(module)
