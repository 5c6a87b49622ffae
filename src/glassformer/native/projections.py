"""Linear transformations outside the stack of an encoder, from packed weights, for inference.

PyTorch's product of a row has other last bits alone than among other rows; that of the kernels has the same.
"""

from threading import Lock
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.layers.embedding import OutputProjection
from glassformer.native.abi import Linear
from glassformer.native.forms import blank, shallow_copy
from glassformer.native.library import Kernels
from glassformer.native.ops import single_on_cpu
from glassformer.native.packed import Packed
from glassformer.taps import tracing


class _Projection(nn.Module):
    """The module itself computes gradients, other types, other weights, and every pass with a trace."""

    copy: "_PackedCopy"

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        result: Tensor = self.copy.multiplied(x) if self.copy.multiplies(self, x) else super().forward(x)
        return result

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A copy has the class of the module itself: the packed weights belong to this form."""
        return blank, (type(self).__bases__[1],), {name: each for name, each in vars(self).items() if name != "copy"}


class PackedLinear(_Projection, nn.Linear):
    pass


class PackedOutputProjection(_Projection, OutputProjection):
    pass


PROJECTIONS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: PackedLinear,
    OutputProjection: PackedOutputProjection,
}
"""Forms of the modules that are packed."""


class _PackedCopy:
    """A packed copy of the weights of ``module``, made when it is first needed: a vocabulary's is large."""

    def __init__(self, module: Any, kernels: Kernels):
        self._module, self._kernels = module, kernels
        self._weights = module.weight, module.bias
        self._lock = Lock()
        self._packed: tuple[Packed, Linear] | None = None

    def multiplies(self, module: Any, x: Tensor) -> bool:
        """True if the kernels compute the product of ``x`` and the weights of ``module``, which has this copy."""
        if torch.is_grad_enabled() or tracing() or not single_on_cpu(x, *module.parameters()):
            return False
        weight, bias = self._weights
        same = module.weight is weight and module.bias is bias
        return same and x.dim() > 0 and x.numel() > 0 and x.size(-1) == weight.size(1)

    def multiplied(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        with self._lock:
            if self._packed is None:
                packed = Packed(self._kernels, int8=False)
                self._packed = packed, packed.linear(self._module)
        packed, linear = self._packed
        rows = x.reshape(-1, x.size(-1)).contiguous()
        return packed.apply(linear, rows).view(*x.shape[:-1], linear.outputs)


def packed_projection(module: nn.Module, kernels: Kernels) -> Any:
    """A form of ``module`` with the same parameters and hooks that multiplies in the kernels; None if it has none."""
    if type(module) not in PROJECTIONS:
        return None
    form: Any = shallow_copy(module)
    form.__class__ = PROJECTIONS[type(module)]
    form.copy = _PackedCopy(module, kernels)
    return form
