"""Operands of a recorded number, and its derivation from them."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from glassformer.explain.formula.expression import Expression, Number, Op, TensorIndex, Vector, dot, op


@dataclass(frozen=True)
class Derivation:
    """The expression of a number; ``formula`` (LaTeX) and ``reference`` only where they differ from its tap's.

    ``remark`` follows the reference.
    """

    expression: Expression
    formula: str = ""
    reference: str = ""
    remark: str = ""


class NamedTensors(Protocol):
    """Recorded tensors of ``model``, with the names of their axes."""

    model: nn.Module

    def __getitem__(self, name: str) -> Tensor: ...
    def __contains__(self, name: object) -> bool: ...
    def axes(self, name: str) -> tuple[str, ...]: ...


class Operands:
    """The numbers that rules read: recorded ones, and parameters of the model."""

    def __init__(self, trace: NamedTensors, place: TensorIndex):
        self.trace, self.model, self.place = trace, trace.model, place
        self.path, _, self.tap = place.name.rpartition(".")
        self.index = dict(place.index)

    def number(self, name: str, **index: int) -> Number:
        """One recorded number; axes not named are as in the number that is explained, or the first."""
        axes = self.trace.axes(name)
        full_index = tuple((axis, index.get(axis, self.index.get(axis, 0))) for axis in axes)
        return _recorded(name, full_index, float(self.trace[name][tuple(place for _, place in full_index)]))

    def numbers(self, name: str, along: str, **index: int) -> Vector:
        """All along one axis."""
        axes, tensor = self.trace.axes(name), self.trace[name]
        fixed = {axis: index.get(axis, self.index.get(axis, 0)) for axis in axes if axis != along}
        row = tensor[tuple(slice(None) if axis == along else fixed[axis] for axis in axes)]

        def number(place: int, value: float) -> Number:
            return _recorded(name, tuple((axis, fixed.get(axis, place)) for axis in axes), value)

        return Vector(_float64(row), number)

    def vector(self, name: str, **index: int) -> Vector:
        """All along the last axis."""
        return self.numbers(name, self.trace.axes(name)[-1], **index)

    def flat(self, name: str, **index: int) -> Vector:
        """All along the last two axes, one row after the other."""
        *_, row_axis, column_axis = axes = self.trace.axes(name)
        fixed = {axis: index.get(axis, self.index.get(axis, 0)) for axis in axes[:-2]}
        rows = self.trace[name][tuple(fixed.values())]

        def number(place: int, value: float) -> Number:
            row, column = divmod(place, rows.size(1))
            return _recorded(name, (*fixed.items(), (row_axis, row), (column_axis, column)), value)

        return Vector(_float64(rows.flatten()), number)

    @property
    def last(self) -> int:
        """Index of the number on the last axis."""
        return self.place.index[-1][1]

    def parameter(self, path: str, *index: int) -> list[Number]:
        """One entry of a parameter, by its place in the model; a missing bias has none."""
        tensor = self._parameter(path)
        return [] if tensor is None else [_named(path, index, float(tensor[index]))]

    def row(self, path: str, row: int, start: int = 0, stop: int | None = None) -> Vector:
        """A row of a matrix, or a stretch of it."""
        tensor = self._parameter(path)
        assert tensor is not None
        part = _float64(tensor[row, start:stop])
        return Vector(part, lambda place, value: _named(path, (row, start + place), value))

    def linear(self, x: Vector, path: str, row: int) -> Op:
        """Σ x W[row] + b[row]."""
        return op("sum", dot(x, self.row(f"{path}.weight", row)), *self.parameter(f"{path}.bias", row))

    def _parameter(self, path: str) -> Tensor | None:
        module, _, name = path.rpartition(".")
        tensor = getattr(self.model.get_submodule(module), name)
        return None if tensor is None else tensor.detach()


def model_input(o: Operands) -> Derivation:
    """Rule of an input of the model: it has no operands, it is itself."""
    return Derivation(Number(o.number(o.place.name).value, o.tap))


def _recorded(name: str, index: tuple[tuple[str, int], ...], value: float) -> Number:
    place = ",".join(str(number) for axis, number in index if axis != "batch")
    return Number(value, f"{name.rpartition('.')[2]}[{place}]", TensorIndex(name, index))


def _named(path: str, index: tuple[int, ...], value: float) -> Number:
    return Number(value, f"{path}[{','.join(map(str, index))}]")


def _float64(tensor: Tensor) -> NDArray[np.float64]:
    return tensor.double().cpu().numpy()
