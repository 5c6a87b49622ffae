"""Arithmetic with named numbers: what a formula is made of, and its evaluation in float64.

An expression remembers where each of its numbers comes from, so that a reader can go on to the formula of any of them.
``evaluate`` gives the value and a magnitude: the same expression with nothing canceling. Rounding errors are
proportional to the magnitude, so a formula is checked against it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Union

import numpy as np
from numpy.typing import NDArray

Expression = Union[
    "Number",
    "Sum",
    "Product",
    "Quotient",
    "Difference",
    "Root",
    "Square",
    "Call",
    "Dot",
    "Total",
    "Squares",
    "Softmax",
]


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
class Sum:
    terms: tuple[Expression, ...]


@dataclass(frozen=True)
class Product:
    factors: tuple[Expression, ...]


@dataclass(frozen=True)
class Quotient:
    numerator: Expression
    denominator: Expression


@dataclass(frozen=True)
class Difference:
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Root:
    argument: Expression


@dataclass(frozen=True)
class Square:
    argument: Expression


@dataclass(frozen=True)
class Call:
    """A function of one argument, by its name in ``FUNCTIONS``."""

    function: str
    argument: Expression


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
class Dot:
    """Σ left[i] · right[i]"""

    left: Vector
    right: Vector

    @property
    def terms(self) -> NDArray[np.float64]:
        return self.left.values * self.right.values

    def term(self, index: int) -> Expression:
        return Product((self.left.number(index), self.right.number(index)))


@dataclass(frozen=True)
class Total:
    """Σ vector[i]"""

    vector: Vector

    @property
    def terms(self) -> NDArray[np.float64]:
        return self.vector.values

    def term(self, index: int) -> Expression:
        return self.vector.number(index)


@dataclass(frozen=True)
class Squares:
    """Σ (vector[i] − center)², or of the numbers themselves."""

    vector: Vector
    center: Number | None = None

    @property
    def terms(self) -> NDArray[np.float64]:
        return np.square(self.vector.values - (0.0 if self.center is None else self.center.value))

    def term(self, index: int) -> Expression:
        number = self.vector.number(index)
        return Square(number if self.center is None else Difference(number, self.center))


@dataclass(frozen=True)
class Softmax:
    """exp(scores[chosen]) / Σ exp(scores), evaluated without overflow; its logarithm when ``log``."""

    scores: Vector
    chosen: int
    log: bool = False


FUNCTIONS: dict[str, Callable[[float], float]] = {
    "sin": math.sin,
    "cos": math.cos,
    "relu": lambda x: max(0.0, x),
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "tanh": math.tanh,
    "silu": lambda x: x / (1 + math.exp(-x)) if x > -700 else 0.0,
}


def evaluate(expression: Expression) -> tuple[float, float]:
    """The value, and its magnitude without cancellation."""
    match expression:
        case Number(value):
            return value, abs(value)
        case Sum(terms):
            parts = [evaluate(term) for term in terms]
            return math.fsum(value for value, _ in parts), math.fsum(size for _, size in parts)
        case Product(factors):
            parts = [evaluate(factor) for factor in factors]
            return math.prod(value for value, _ in parts), math.prod(size for _, size in parts)
        case Difference(left, right):
            (a, size_a), (b, size_b) = evaluate(left), evaluate(right)
            return a - b, size_a + size_b
        case Quotient(numerator, denominator):
            (a, size), (b, _) = evaluate(numerator), evaluate(denominator)
            return a / b, size / abs(b)
        case Root(argument):
            value, size = evaluate(argument)
            return math.sqrt(value), math.sqrt(size)
        case Square(argument):
            value, size = evaluate(argument)
            return value * value, size * size
        case Call(function, argument):
            value, size = evaluate(argument)
            result = FUNCTIONS[function](value)
            return result, max(abs(result), size)
        case Dot() | Total():
            return float(expression.terms.sum()), float(np.abs(expression.terms).sum())
        case Squares(vector, center):
            sizes = np.square(np.abs(vector.values) + (0.0 if center is None else abs(center.value)))
            return float(expression.terms.sum()), float(sizes.sum())
        case Softmax(scores, chosen, log):
            return _softmax(scores.values, chosen, log)
    raise TypeError(f"{expression!r} is not an expression")


def leaves(expression: Expression) -> list[Number]:
    """Every number in it, in reading order."""
    match expression:
        case Number():
            return [expression]
        case Sum(parts) | Product(parts):
            return [leaf for part in parts for leaf in leaves(part)]
        case Dot() | Total() | Squares():
            return [leaf for index in range(len(expression.terms)) for leaf in leaves(expression.term(index))]
        case Softmax(scores):
            return [scores.number(index) for index in range(len(scores))]
        case Quotient(first, second) | Difference(first, second):
            return leaves(first) + leaves(second)
        case Root(argument) | Square(argument) | Call(_, argument):
            return leaves(argument)
    raise TypeError(f"{expression!r} is not an expression")


def _softmax(scores: NDArray[np.float64], chosen: int, log: bool) -> tuple[float, float]:
    powers = np.exp(scores - scores.max())
    if log:
        value = float(scores[chosen] - scores.max() - np.log(powers.sum()))
        return value, abs(value) + float(np.abs(scores[np.isfinite(scores)]).max())
    return float(powers[chosen] / powers.sum()), 1.0
