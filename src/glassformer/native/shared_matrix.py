"""The matrix that embeddings and the output projection share (section 3.4), as one node of autograd's graph."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from glassformer.native.gradients import add_


class SharedMatrix:
    """A parameter for each of ``n_uses`` modules, with a node that sums the gradients of all of them in place.

    A parameter that is used directly gets a gradient of its full size from each embedding: for 8,000 tokens of width
    256 that are 8 MB to fill and to add, of which a batch reads a tenth. Through this node an embedding gives the
    gradients of the rows that it read, as a sparse tensor. The gradient of the parameter itself is always dense.

    It stores nothing that belongs to the model: after the parameter was replaced, moved, converted or changed in place,
    ``use`` makes the node again, a frozen parameter is used without one, and a copy is empty.
    """

    _node: tuple[Tensor, int, tuple[Tensor, ...]] | None = None
    """The parameter, its version, and the result of the node for each use."""

    def __init__(self, n_uses: int = 1):
        self.n_uses = n_uses

    def use(self, weight: Tensor, number: int = 0) -> Tensor:
        """``weight``, of the same memory, for the module with this number. Its gradient may be sparse.

        The node changes gradients in place, so they must belong to nobody else.
        """
        if not weight.requires_grad or not torch.is_grad_enabled():
            return weight
        if self._node is None or not self._current(weight):
            self._node = None  # with it goes PyTorch's node of the parameter, which would keep a former shape
            self._node = weight, weight._version, _Uses.apply(weight, self.n_uses)
        return self._node[2][number]

    def _current(self, weight: Tensor) -> bool:
        """False if results of the node, which are views, belong to another parameter, version or memory."""
        assert self._node is not None
        known, version, uses = self._node
        return known is weight and version == weight._version and _identity(uses[0]) == _identity(weight)

    def __getstate__(self) -> dict[str, Any]:
        """The number of uses; a copy is for other parameters."""
        return {"n_uses": self.n_uses}


def _identity(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def share_matrices(model: nn.Module, kinds: tuple[type[nn.Module], ...]) -> None:
    """Let the modules of ``kinds`` in ``model`` that have one ``weight`` use it through one node (``use_weight``)."""
    users: dict[int, list[Any]] = {}
    for module in model.modules():
        if isinstance(module, kinds):
            users.setdefault(id(module.weight), []).append(module)
    for modules in users.values():
        matrix = SharedMatrix(len(modules))
        for number, module in enumerate(modules):
            module.use_weight = Use(matrix, number)


class Use:
    """The use of a ``SharedMatrix`` by one of its modules; without arguments, by a module that shares it with none."""

    def __init__(self, matrix: SharedMatrix | None = None, number: int = 0):
        self.matrix, self.number = matrix, number

    def __call__(self, weight: Tensor) -> Tensor:
        return (self.matrix or SharedMatrix()).use(weight, self.number)


class _Uses(torch.autograd.Function):
    """The identity, once for each use. The gradients are added in the order of a backward pass: the last use first."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, n_uses: int) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        return tuple(weight.view_as(weight) for _ in range(n_uses))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None]:
        total: Tensor | None = None
        for gradient in reversed(gradients):
            if gradient is not None and total is None:
                total = gradient.to_dense() if gradient.is_sparse else gradient
            elif gradient is not None and total is not None:
                total = add_(total, gradient)
        return total, None
