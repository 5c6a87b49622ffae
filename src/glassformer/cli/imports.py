"""Import PyTorch without its Python kernels of meta tensors, which no inference uses."""

import sys
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import ModuleType
from typing import Any

_META_KERNELS = "torch._meta_registrations"
"""Kernels, written in Python, of tensors without data. PyTorch's compilers use them."""
_IMPORTED_BY_THEM = ("_refs", "_prims", "_decomp")
"""Modules that PyTorch also looks up as its attributes, as ``torch.broadcast_shapes`` does."""
_COMPILERS = ("torch._dynamo", "torch._inductor")


def postpone_meta_kernels() -> None:
    """Let PyTorch be imported without these kernels, which saves a quarter of the time of ``import torch``.

    They are executed when a name of theirs is used, or before a compiler of PyTorch is imported. Until then, operations
    on meta tensors have the kernels that are written in C++: enough to build every model of this package. If PyTorch is
    imported already, this does nothing. It is for a process that runs one command.
    """
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, _PostponingLoader())


class _PostponingLoader(Loader):
    """Finder and loader of the module. ``importlib.util.LazyLoader`` executes it at its second import statement."""

    _module: ModuleType | None = None
    """The module while it is postponed."""

    def __init__(self) -> None:
        self._lock = RLock()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name in _COMPILERS:
            self._execute()
        if name != _META_KERNELS or sys.modules.keys() & set(_COMPILERS):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            self._loader, spec.loader = spec.loader, self
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """Leave ``module`` empty: using a name of it executes it (PEP 562)."""
        self._module = module
        self._execute_for_names_of(module)
        for name in _IMPORTED_BY_THEM:
            if f"torch.{name}" not in sys.modules:
                stand_in = ModuleType(f"torch.{name}")
                self._execute_for_names_of(stand_in)
                setattr(sys.modules["torch"], name, stand_in)  # until the import of the module replaces it

    def _execute_for_names_of(self, module: ModuleType) -> None:
        def attribute(name: str) -> Any:
            if name.startswith("__"):  # such as __path__, which the import system looks for in every module
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            self._execute()
            return getattr(sys.modules[module.__name__], name)

        module.__getattr__ = attribute  # type: ignore[method-assign]

    def _execute(self) -> None:
        with self._lock:
            module, self._module = self._module, None
            if module is not None:
                find = module.__getattr__
                try:
                    del module.__getattr__
                    self._loader.exec_module(module)
                except BaseException:
                    self._module, module.__getattr__ = module, find  # type: ignore[method-assign]
                    raise
