"""What rules read and give: the operands of a recorded number, and its derivation from them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from glassformer.explain.expression import Expression, Number, Place, Product, Sum

if TYPE_CHECKING:
    from glassformer.explain.trace import Trace


@dataclass(frozen=True)
class Derivation:
    """``law`` in LaTeX, where it comes from, and the expression with this example's numbers."""

    law: str
    source: str
    expression: Expression


class Operands:
    """The numbers that rules read: recorded ones, and parameters of the model."""

    def __init__(self, trace: "Trace", place: Place):
        self.trace, self.model, self.place = trace, trace.model, place
        self.path, _, self.tap = place.name.rpartition(".")
        self.index = dict(place.index)

    def number(self, name: str, **index: int) -> Number:
        """One recorded number; axes not named are as in the number that is explained, or the first."""
        return self.numbers(name, None, **index)[0]

    def numbers(self, name: str, along: str | None, **index: int) -> list[Number]:
        """All along one axis."""
        axes, tensor = self.trace.axes(name), self.trace[name]
        fixed = {axis: index.get(axis, self.index.get(axis, 0)) for axis in axes if axis != along}
        row = tensor[tuple(slice(None) if axis == along else fixed[axis] for axis in axes)].double().reshape(-1)
        short = name.rpartition(".")[2]
        found = []
        for place, value in enumerate(row.tolist()):
            whole = {axis: place if axis == along else fixed[axis] for axis in axes}
            shown = ",".join(str(number) for axis, number in whole.items() if axis != "batch")
            found.append(Number(value, f"{short}[{shown}]", Place(name, tuple(whole.items()))))
        return found

    def parameters(self, path: str, *index: int) -> list[Number]:
        """A parameter's entry or row, by its place in the model; a missing bias has none."""
        module, _, name = path.rpartition(".")
        tensor = getattr(self.model.get_submodule(module), name)
        if tensor is None:
            return []
        row: Tensor = tensor.detach()[index].double().reshape(-1)
        start = ",".join(map(str, index))
        many = row.numel() > 1 or len(index) < tensor.ndim
        places = [f"{start},{i}" if start and many else str(i) if many else start for i in range(row.numel())]
        return [Number(value, f"{path}[{at}]") for value, at in zip(row.tolist(), places, strict=True)]

    def linear(self, x: list[Number], path: str, row: int) -> Sum:
        """Σ x W[row] + b[row]."""
        weights, bias = self.parameters(f"{path}.weight", row), self.parameters(f"{path}.bias", row)
        return Sum((*products(x, weights), *bias))


def products(left: Iterable[Number], right: Iterable[Number]) -> list[Product]:
    """Entry by entry, as in a dot product."""
    return [Product(pair) for pair in zip(left, right, strict=True)]
