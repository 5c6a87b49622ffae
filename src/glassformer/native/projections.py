"""Linear transformations beside the stacks of an encoder, from packed weights, for inference.

PyTorch's product of one row differs from the same row among others by the last bits; the kernels' does not.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.layers.embedding import OutputProjection
from glassformer.native.abi import Linear
from glassformer.native.forms import shallow_copy
from glassformer.native.library import Kernels
from glassformer.native.ops import single_on_cpu
from glassformer.native.packed import Packed
from glassformer.taps import tracing


class PackedLinear(nn.Linear):
    """The module itself computes gradients, other types, and every pass with a trace."""

    copies: "_Copies"

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        return self.copies.apply(self, x) if _computes(self, x) else super().forward(x)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A copy is an ``nn.Linear``: the packed weights belong to this form."""
        return _plain(self, nn.Linear)


class PackedOutputProjection(OutputProjection):
    """Like ``PackedLinear``."""

    copies: "_Copies"

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        return self.copies.apply(self, x) if _computes(self, x) else super().forward(x)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _plain(self, OutputProjection)


FORMS: dict[type[nn.Module], type[nn.Module]] = {nn.Linear: PackedLinear, OutputProjection: PackedOutputProjection}


class _Copies:
    """A packed copy of the weights of a module, made when it is first needed: a vocabulary's is large."""

    def __init__(self, kernels: Kernels):
        self._kernels = kernels
        self._packed: tuple[Packed, Linear] | None = None

    def apply(self, module: Any, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        if self._packed is None:
            packed = Packed(self._kernels, int8=False)
            self._packed = packed, packed.linear(module)
        packed, linear = self._packed
        rows = x.reshape(-1, x.size(-1)).contiguous()
        return packed.apply(linear, rows).view(*x.shape[:-1], linear.outputs)


def packed_projection(module: nn.Module, kernels: Kernels) -> Any:
    """A form of ``module`` with the same parameters and hooks that multiplies in the kernels; None if it has none."""
    if type(module) not in FORMS:
        return None
    form: Any = shallow_copy(module)
    form.__class__ = FORMS[type(module)]
    form.copies = _Copies(kernels)
    return form


def _computes(module: Any, x: Tensor) -> bool:
    """True if the kernels multiply ``x``."""
    if torch.is_grad_enabled() or tracing() or not single_on_cpu(x, *module.parameters()):
        return False
    return x.dim() > 0 and x.numel() > 0 and x.size(-1) == module.weight.size(1)


def _plain(module: nn.Module, kind: type[nn.Module]) -> Any:
    return _blank, (kind,), {name: value for name, value in module.__dict__.items() if name != "copies"}


def _blank(kind: type[nn.Module]) -> nn.Module:
    return kind.__new__(kind)
