"""Taps: record or edit any tensor of a model by name.

``tap(self, "weights", weights)`` is the identity unless inside ``with record(model) as r:``. Then the tensor is stored
under the module's path and the tap's name, ``decoder.layers.1.cross_attention.weights``. Modules do not know their
path, ``forward`` returns the same values, and without recording a tap costs about 0.2 µs. ``note`` computes a tensor
that the model itself does not need, such as a probability, only while recording.

``glassformer.trace`` adds axes, formulas and files (``explain.trace``).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigError, nearest

Edit = Callable[[Tensor], Tensor]

_active: ContextVar["Recording | None"] = ContextVar("glassformer_recording", default=None)


class Recording:
    """The tensors of one ``record``; each name maps to every tensor that passed it, in order."""

    def __init__(self, model: nn.Module, keep: str = "*", edits: Mapping[str, Edit] | None = None):
        # An accelerated form of a module has its dictionary of parameters, so it has its name too.
        self._paths = {id(module._parameters): path for path, module in model.named_modules()}
        self._keep = keep
        self._edits = dict(edits or {})
        self._edits_of: dict[str, list[str]] = {}
        """Patterns of ``edits`` that match each tensor name, in their order."""
        self._tensors: dict[str, list[Tensor]] = {}
        self._seen: dict[str, bool] = {}
        """Names of all passed taps and notes; True for taps, whose edits have an effect."""

    def __getitem__(self, name: str) -> Tensor:
        """The last tensor recorded under ``name``; a cached decoding run records one for every step, see ``all``."""
        return self.all(name)[-1]

    def __setitem__(self, name: str, tensor: Tensor) -> None:
        """Replace the last tensor recorded under ``name`` by one of the same shape, without another forward pass.

        To change the computation of a model, pass ``edits``.
        """
        every = self.all(name)
        if tensor.shape != every[-1].shape:
            raise ConfigError(
                f"{name} has a shape of {list(every[-1].shape)}, not {list(tensor.shape)}; give a tensor of that shape"
            )
        every[-1] = tensor

    def all(self, name: str) -> list[Tensor]:
        if name not in self._tensors:
            raise ConfigError(f"nothing was recorded under {name!r}; {nearest(name, list(self._tensors))}")
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __len__(self) -> int:
        return len(self._tensors)

    def _pass(self, module: nn.Module, name: str, tensor: Tensor) -> Tensor:
        if (full := self._full_name(module, name)) is None:
            return tensor
        self._seen[full] = True
        for pattern in self._matching(full):
            edited = self._edits[pattern](tensor)
            if not isinstance(edited, Tensor):
                what = "None" if edited is None else f"a {type(edited).__name__}"
                raise ConfigError(
                    f"the edit of {full} returns {what}; return a tensor of shape {list(tensor.shape)}, "
                    "also after changing it in place"
                )
            if edited.shape != tensor.shape:
                raise ConfigError(
                    f"the edit of {full} gives a shape of {list(edited.shape)} instead of {list(tensor.shape)}; "
                    "return a tensor of the same shape"
                )
            tensor = edited.to(tensor)
        self._keep_of(full, tensor)
        return tensor

    def _matching(self, full: str) -> list[str]:
        """Patterns of ``edits`` that match ``full``, in their order."""
        if full not in self._edits_of:
            self._edits_of[full] = [pattern for pattern in self._edits if fnmatchcase(full, pattern)]
        return self._edits_of[full]

    def _note(self, module: nn.Module, name: str, compute: Callable[[], Tensor]) -> None:
        if (full := self._full_name(module, name)) is not None:
            self._seen.setdefault(full, False)
            if fnmatchcase(full, self._keep):
                self._keep_of(full, compute())

    def _full_name(self, module: nn.Module, name: str) -> str | None:
        path = self._paths.get(id(module._parameters))
        return None if path is None else f"{path}.{name}" if path else name

    def _keep_of(self, full: str, tensor: Tensor) -> None:
        if fnmatchcase(full, self._keep):
            self._tensors.setdefault(full, []).append(tensor.detach().clone())  # the caller may overwrite it

    def _check(self) -> None:
        if not self._seen:
            raise ConfigError("the trace recorded nothing: the model did not run, or ran compiled; trace it uncompiled")
        if not self._tensors:
            raise ConfigError(f"no tensor matches keep={self._keep!r}; {_nearest(self._keep, list(self._seen))}")
        for name in self._edits:
            matching = [name_seen for name_seen in self._seen if fnmatchcase(name_seen, name)]
            if not matching:
                raise ConfigError(f"no tensor to edit under {name!r}; {_nearest(name, list(self._seen))}")
            if not any(self._seen[one] for one in matching):
                raise ConfigError(
                    f"nothing is computed from {matching[0]}, so an edit of it has no effect; edit one of its inputs"
                )


def _nearest(pattern: str, names: list[str]) -> str:
    """Suggest the tensor name nearest to ``pattern``, a name or a glob."""
    parts = [part for part in pattern.split(".") if part.strip("*")]
    endings = {".".join(name.split(".")[-len(parts) :]): name for name in names}
    close = get_close_matches(".".join(parts), list(endings), n=1, cutoff=0.5)
    if "*" not in pattern or not close:
        return nearest(pattern, names)
    return f"did you mean {endings[close[0]]}?"


@contextmanager
def recording(current: Recording) -> Iterator[None]:
    """Fill ``current`` with the tensors of its model. Raises ``ConfigError`` at the end if there are none."""
    token = _active.set(current)
    try:
        yield
    finally:
        _active.reset(token)
    current._check()


@contextmanager
def record(model: nn.Module, keep: str = "*", edits: Mapping[str, Edit] | None = None) -> Iterator[Recording]:
    """Record every tapped tensor of ``model`` whose name matches the glob ``keep``, and apply ``edits``.

    ``edits`` maps globs to functions. All that match a name are applied, in their order.
    """
    current = Recording(model, keep, edits)
    with recording(current):
        yield current


def hooks_of(module: nn.Module) -> tuple[Mapping[int, Any], ...]:
    """Registries of the hooks that a call of ``module`` runs."""
    return module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks


def all_hooks(*modules: nn.Module) -> list[Mapping[int, Any]]:
    """Registries of the hooks of ``modules`` and of all modules inside them, also of hooks registered later."""
    return [hooks for module in modules for part in module.modules() for hooks in hooks_of(part)]


class InputRecorder:
    """A forward pre-hook that stores the arguments of each call of a module, and changes nothing.

    Unlike other hooks, one on the cross-attention of a layer lets a native stack train in one kernel.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        self.calls.append(arguments)


def has_hooks(module: nn.Module) -> bool:
    """True if ``module`` has forward or backward hooks, which require a call of the module."""
    return any(hooks_of(module))


def tracing() -> bool:
    """True while a trace records, which requires the definition instead of a fused kernel."""
    return not torch.compiler.is_compiling() and _active.get() is not None


def tap(module: nn.Module, name: str, tensor: Tensor) -> Tensor:
    """Return ``tensor``; inside ``record``, store it and apply edits."""
    if torch.compiler.is_compiling():
        return tensor
    current = _active.get()
    return tensor if current is None else current._pass(module, name, tensor)


def note(module: nn.Module, name: str, compute: Callable[[], Tensor]) -> None:
    """Inside ``record``, store the result of ``compute``, which the model itself does not use; else do nothing."""
    if not torch.compiler.is_compiling() and (current := _active.get()) is not None:
        current._note(module, name, compute)
