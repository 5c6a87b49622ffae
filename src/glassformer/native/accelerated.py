"""Accelerated forms of a model that is used for decoding, made when they are first needed."""

import warnings
from typing import Any

from torch import nn

from glassformer.errors import ConfigError
from glassformer.native.execution import Execution
from glassformer.native.routes import Engine, Precision, accelerate, unsupported_decoding
from glassformer.taps import all_hooks, tracing


class Accelerated:
    """The accelerated forms of ``model``, one for each engine and precision.

    A form may hold packed copies of the weights. After a change of the weights, ``refresh`` is required; until then a
    search raises ``ConfigError``. (A write through ``parameter.data`` or a NumPy view is not detected: the old copies
    are used until ``refresh``.) A trace, and a model with hooks, runs the model itself.
    """

    def __init__(self, model: nn.Module):
        self.model = model
        self.refresh()

    def refresh(self) -> None:
        """Discard the copies, so that weights and modules are read again."""
        self._forms: dict[tuple[str, str], tuple[Any, list[Any]]] = {}
        modules = list(self.model.modules())
        self._modules = modules
        self._hooks = all_hooks(self.model)
        self._parameters = [module._parameters for module in modules]
        self._children = [module._modules for module in modules]

    def form(self, engine: Engine, precision: Precision) -> Any:
        """The form of the model for these settings: the model itself for a trace or hooks."""
        if tracing():
            return self.model
        training = any(module.training for module in self._modules)
        if training or any(self._hooks):
            if engine == "native" or precision == "int8":
                setting = "precision=int8" if precision == "int8" else "engine=native"
                way_out = "is in training mode; call eval()" if training else "has hooks; remove them"
                raise ConfigError(f"{setting} is not possible: the model {way_out}")
            return self.model
        if (engine, precision) not in self._forms:
            self._forms[engine, precision] = accelerate(self.model, engine, precision), self._current_state()
        form, state = self._forms[engine, precision]
        if Execution.of(form).copies_weights and state != self._current_state():
            raise ConfigError("the weights have changed since the kernels copied them; call refresh() first")
        return form

    def __getstate__(self) -> nn.Module:
        """The model alone: the forms hold addresses of this process."""
        return self.model

    def __setstate__(self, model: nn.Module) -> None:
        self.__init__(model)  # type: ignore[misc]

    def _current_state(self) -> list[Any]:
        return _state(self._parameters, self._children)


def supported_decoding(decoding: Any, model: nn.Module, origin: str) -> Any:
    """Stored settings of ``decoding``; with ``auto`` and ``float32``, and a warning, if ``model`` cannot use them here.

    They may come from a machine with a GPU, or with another processor.
    """
    device = next(model.parameters()).device
    reason = unsupported_decoding(model, decoding.engine, decoding.precision, device)
    if reason is None:
        return decoding
    warnings.warn(f"{origin}: decoding.{reason}; using float32 and engine=auto", stacklevel=4)
    return decoding.model_copy(update={"engine": "auto", "precision": "float32"})


def weights_state(model: nn.Module) -> list[Any]:
    """Fingerprint that changes when a weight of ``model`` is written (unless through ``data``) or a module replaced."""
    modules = list(model.modules())
    return _state([module._parameters for module in modules], [module._modules for module in modules])


def _state(parameters: list[dict[str, Any]], children: list[dict[str, Any]]) -> list[Any]:
    """The fingerprint, from the dictionaries of all modules; it takes 0.03 to 0.06 ms."""
    weights = [p for named in parameters for p in named.values() if p is not None]
    return [
        [id(child) for named in children for child in named.values()],
        [(p.data_ptr(), 0 if p.is_inference() else p._version) for p in weights],
    ]
