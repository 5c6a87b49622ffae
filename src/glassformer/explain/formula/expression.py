"""Arithmetic with named numbers: what a formula is made of, and its evaluation in float64.

An expression is a number, an operation on expressions, or a reduction of vectors. It remembers the origin of each of
its numbers, so that a reader can go on to the formula of any of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Union

import numpy as np
from numpy.typing import NDArray

from glassformer.explain.formula.operators import OPS, REDUCTIONS

Expression = Union["Number", "Op", "Reduction"]


@dataclass(frozen=True)
class TensorIndex:
    """Index of one number in a recorded tensor: ``index`` fixes each of its axes."""

    name: str
    index: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Number:
    """A leaf. ``place`` is set when it was recorded, and so has a formula of its own."""

    value: float
    symbol: str = ""
    place: TensorIndex | None = None


@dataclass(frozen=True)
class Op:
    """An operation of the table ``OPS``, by name, on its operands."""

    name: str
    args: tuple[Expression, ...]


class Vector:
    """A row of numbers, recorded along one axis or of a parameter; ``number`` gives one with its name."""

    def __init__(self, values: NDArray[np.float64], number: Callable[[int, float], Number]):
        self.values = values
        self._number = number

    def __len__(self) -> int:
        return len(self.values)

    def number(self, index: int) -> Number:
        return self._number(index, float(self.values[index]))


@dataclass(frozen=True)
class Reduction:
    """A sum over the entries of ``vectors``, by the table ``REDUCTIONS``.

    Of a softmax and its logarithm, ``chosen`` is the entry in the numerator.
    """

    kind: str
    vectors: tuple[Vector, ...]
    chosen: int = -1

    @property
    def size(self) -> int:
        """Number of terms."""
        return len(self.vectors[0])

    @property
    def terms(self) -> NDArray[np.float64]:
        """Value of each term."""
        return REDUCTIONS[self.kind].terms(*(vector.values for vector in self.vectors))

    def term(self, index: int) -> Expression:
        """One term, as an operation on its numbers."""
        return apply_each(REDUCTIONS[self.kind].operations, *(vector.number(index) for vector in self.vectors))


def op(name: str, *args: Expression) -> Op:
    """``op("product", a, b)``."""
    return Op(name, args)


def apply_each(operations: tuple[str, ...], *args: Expression) -> Expression:
    """Apply the first of ``operations`` to ``args``, and each other to the result of the one before."""
    for name in operations:
        args = (op(name, *args),)
    return args[0]


def dot(left: Vector, right: Vector) -> Reduction:
    """Σ left[i] · right[i]"""
    return Reduction("dot", (left, right))


def total(vector: Vector) -> Reduction:
    """Σ vector[i]"""
    return Reduction("total", (vector,))


def squares(vector: Vector, center: Number | None = None) -> Reduction:
    """Σ (vector[i] − center)², or Σ vector[i]²."""
    if center is None:
        return Reduction("squares", (vector,))
    return Reduction("squared_deviations", (vector, Vector(np.full(len(vector), center.value), lambda *_: center)))


def softmax(scores: Vector, chosen: int) -> Reduction:
    """exp(scores[chosen]) / Σ exp(scores)"""
    return Reduction("softmax", (scores,), chosen)


def log_softmax(scores: Vector, chosen: int) -> Reduction:
    """scores[chosen] − ln Σ exp(scores)"""
    return Reduction("log_softmax", (scores,), chosen)


def evaluate(expression: Expression) -> tuple[float, float]:
    """The value, and its magnitude: the same expression with nothing canceling.

    Rounding errors are proportional to the magnitude, so a formula is checked against it.
    """
    match expression:
        case Number(value):
            return value, abs(value)
        case Op(name, args):
            values, sizes = zip(*map(evaluate, args), strict=True)
            value = OPS[name].value(values)
            return value, OPS[name].magnitude(values, sizes, value)
        case Reduction(kind, vectors, chosen):
            return REDUCTIONS[kind].evaluate([vector.values for vector in vectors], chosen)


def leaves(expression: Expression) -> list[Number]:
    """Every number in it, in reading order."""
    match expression:
        case Number():
            return [expression]
        case Op(_, args):
            return [leaf for arg in args for leaf in leaves(arg)]
        case Reduction():
            return [leaf for index in range(expression.size) for leaf in leaves(expression.term(index))]
