"""Look at, or change, any tensor that a model computes, by name.

``tap(self, "weights", weights)`` is the identity unless inside ``with trace(model) as t:``; then the tensor is recorded
under the module's path and the tap's name, ``decoder.layers.1.cross_attention.weights``. A module knows nothing of its
place, ``forward`` returns what it always returns, and a model that is not traced pays about 0.2 µs a tap.

The file is not called trace.py: a module of that name, once imported, would hide the function ``glassformer.trace``.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from glassformer.config import ConfigError, nearest

Edit = Callable[[Tensor], Tensor]

_active: ContextVar["Trace | None"] = ContextVar("glassformer_trace", default=None)


class Trace:
    """The tensors recorded under one ``trace``; each name maps to every tensor that passed it, in order."""

    def __init__(self, model: nn.Module, keep: str, edits: Mapping[str, Edit]):
        self._paths = {id(module): path for path, module in model.named_modules()}
        self._keep = keep
        self._edits = edits
        self._tensors: dict[str, list[Tensor]] = {}
        self._seen: set[str] = set()

    def __getitem__(self, name: str) -> Tensor:
        """The last tensor recorded under ``name``; a cached decoding run records one for every step, see ``all``."""
        return self.all(name)[-1]

    def all(self, name: str) -> list[Tensor]:
        if name not in self._tensors:
            raise ConfigError(f"nothing was recorded under {name!r}; {nearest(name, list(self._tensors))}")
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def _pass(self, module: nn.Module, name: str, tensor: Tensor) -> Tensor:
        path = self._paths.get(id(module))
        if path is None:
            return tensor
        full = f"{path}.{name}" if path else name
        self._seen.add(full)
        if full in self._edits:
            tensor = self._edits[full](tensor)
        if fnmatchcase(full, self._keep):
            self._tensors.setdefault(full, []).append(tensor.detach())
        return tensor

    def _check(self) -> None:
        if not self._seen:
            raise ConfigError("the trace recorded nothing: the model did not run, or ran compiled; trace it uncompiled")
        if not self._tensors:
            raise ConfigError(f"no tensor matches keep={self._keep!r}; {nearest(self._keep, list(self._seen))}")
        for name in self._edits:
            if name not in self._seen:
                raise ConfigError(f"no tensor to edit under {name!r}; {nearest(name, list(self._seen))}")


@contextmanager
def trace(model: nn.Module, keep: str = "*", edits: Mapping[str, Edit] | None = None) -> Iterator[Trace]:
    """Record every tapped tensor of ``model`` whose name matches the glob ``keep``, and apply ``edits`` by name.

    Raises ``ConfigError`` at the end when nothing was recorded, as after running a compiled model.
    """
    current = Trace(model, keep, edits or {})
    token = _active.set(current)
    try:
        yield current
    finally:
        _active.reset(token)
    current._check()


def tracing() -> bool:
    """Whether intermediates are wanted, so that the definition must run instead of a fused kernel."""
    return not torch.compiler.is_compiling() and _active.get() is not None


def tap(module: nn.Module, name: str, tensor: Tensor) -> Tensor:
    """The identity; inside ``trace`` it records ``tensor`` and lets an edit replace it."""
    if torch.compiler.is_compiling():
        return tensor
    current = _active.get()
    return tensor if current is None else current._pass(module, name, tensor)
