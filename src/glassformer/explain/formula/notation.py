"""An expression with its numbers, written as text, LaTeX or MathML.

Long sums show their largest terms, in their order, and the sum of the others: ``… + 60 further terms = 0.0132``.
"""

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Protocol

from glassformer.explain.formula.expression import (
    Call,
    Difference,
    Dot,
    Expression,
    Number,
    Product,
    Quotient,
    Root,
    Softmax,
    Square,
    Squares,
    Sum,
    Total,
    evaluate,
)

SHOWN = 4
"""Terms of a long sum that are written out."""


def decimal(value: float) -> str:
    """Four significant digits; −∞ as such; a typographic minus."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.4g}".replace("-", "−")


class Notation(Protocol):
    """How the pieces of an expression are joined; every argument but a number is written already."""

    def number(self, number: Number) -> str: ...
    def sum(self, terms: Sequence[str]) -> str: ...
    def product(self, factors: Sequence[str]) -> str: ...
    def difference(self, left: str, right: str) -> str: ...
    def quotient(self, numerator: str, denominator: str) -> str: ...
    def root(self, argument: str) -> str: ...
    def square(self, argument: str) -> str: ...
    def power_of_e(self, argument: str) -> str: ...
    def call(self, function: str, argument: str) -> str: ...
    def group(self, argument: str) -> str: ...
    def rest(self, count: int, total: float) -> str: ...


class Text:
    """For a terminal and a screen reader."""

    def number(self, number: Number) -> str:
        return decimal(number.value)

    def sum(self, terms: Sequence[str]) -> str:
        return " + ".join(terms)

    def product(self, factors: Sequence[str]) -> str:
        return " · ".join(factors)

    def difference(self, left: str, right: str) -> str:
        return f"{left} − {right}"

    def quotient(self, numerator: str, denominator: str) -> str:
        return f"{numerator} / {denominator}"

    def root(self, argument: str) -> str:
        return f"√({argument})"

    def square(self, argument: str) -> str:
        return f"{argument}²"

    def power_of_e(self, argument: str) -> str:
        return f"exp({argument})"

    def call(self, function: str, argument: str) -> str:
        return f"{function}({argument})"

    def group(self, argument: str) -> str:
        return f"({argument})"

    def rest(self, count: int, total: float) -> str:
        return f"… {count:,} further terms = {decimal(total)}"


class Latex(Text):
    """For a paper; needs amsmath."""

    def number(self, number: Number) -> str:
        return self._decimal(number.value)

    def product(self, factors: Sequence[str]) -> str:
        return r" \cdot ".join(factors)

    def difference(self, left: str, right: str) -> str:
        return f"{left} - {right}"

    def quotient(self, numerator: str, denominator: str) -> str:
        return rf"\frac{{{numerator}}}{{{denominator}}}"

    def root(self, argument: str) -> str:
        return rf"\sqrt{{{argument}}}"

    def square(self, argument: str) -> str:
        return f"{argument}^2"

    def power_of_e(self, argument: str) -> str:
        return f"e^{{{argument}}}"

    def call(self, function: str, argument: str) -> str:
        name = (
            rf"\{function}"
            if function in ("sin", "cos", "ln", "tanh")
            else rf"\operatorname{{{function.replace('_', ' ')}}}"
        )
        return rf"{name}\left({argument}\right)"

    def group(self, argument: str) -> str:
        return rf"\left({argument}\right)"

    def rest(self, count: int, total: float) -> str:
        return rf"\underbrace{{\dots}}_{{{count}\text{{ further terms}} = {self._decimal(total)}}}"

    @staticmethod
    def _decimal(value: float) -> str:
        """In brackets where it has a power of ten, which may be raised to another."""
        figure, _, exponent = decimal(value).replace("−", "-").replace("∞", r"\infty ").partition("e")
        return rf"\left({figure} \cdot 10^{{{int(exponent)}}}\right)" if exponent else figure


class MathML:
    """For a page. A number that has a formula of its own is marked with its place, so that a click can go there."""

    def number(self, number: Number) -> str:
        title = f' title="{escape(number.symbol)}"' if number.symbol else ""
        place = ""
        if number.place is not None:
            index = ",".join(f"{axis}={value}" for axis, value in number.place.index)
            place = f' data-place="{escape(number.place.name)}[{escape(index)}]"'
        return f"<mn{title}{place}>{decimal(number.value)}</mn>"

    def sum(self, terms: Sequence[str]) -> str:
        return _row("<mo>+</mo>".join(terms))

    def product(self, factors: Sequence[str]) -> str:
        return _row("<mo>·</mo>".join(factors))

    def difference(self, left: str, right: str) -> str:
        return _row(f"{left}<mo>−</mo>{right}")

    def quotient(self, numerator: str, denominator: str) -> str:
        return f"<mfrac>{_row(numerator)}{_row(denominator)}</mfrac>"

    def root(self, argument: str) -> str:
        return f"<msqrt>{argument}</msqrt>"

    def square(self, argument: str) -> str:
        return f"<msup>{_row(argument)}<mn>2</mn></msup>"

    def power_of_e(self, argument: str) -> str:
        return f"<msup><mi>e</mi>{_row(argument)}</msup>"

    def call(self, function: str, argument: str) -> str:
        return _row(f"<mi>{function}</mi><mo>(</mo>{argument}<mo>)</mo>")

    def group(self, argument: str) -> str:
        return _row(f"<mo>(</mo>{argument}<mo>)</mo>")

    def rest(self, count: int, total: float) -> str:
        return f"<munder><mo>…</mo><mtext>{count:,} further terms = {decimal(total)}</mtext></munder>"


def write(expression: Expression, notation: Notation) -> str:
    """The whole expression in ``notation``."""
    match expression:
        case Number():
            return notation.number(expression)
        case Sum(terms):
            return _long_sum([evaluate(term)[0] for term in terms], terms.__getitem__, notation)
        case Product(factors):
            return notation.product([_grouped(factor, notation) for factor in factors])
        case Difference(left, right):
            return notation.difference(write(left, notation), _grouped(right, notation))
        case Quotient(numerator, denominator):
            inside = write if isinstance(notation, Latex | MathML) else _grouped  # a fraction bar groups
            return notation.quotient(inside(numerator, notation), inside(denominator, notation))
        case Root(argument):
            return notation.root(write(argument, notation))
        case Square(argument):
            return notation.square(_grouped(argument, notation))
        case Call(function, argument):
            return notation.call(function, write(argument, notation))
        case Dot() | Total() | Squares():
            return _long_sum(list(expression.terms), expression.term, notation)
        case Softmax():
            return _softmax(expression, notation)
    raise TypeError(f"{expression!r} is not an expression")


def _row(inside: str) -> str:
    return f"<mrow>{inside}</mrow>"


def _grouped(expression: Expression, notation: Notation) -> str:
    """In brackets where it would otherwise be read as something else."""
    written = write(expression, notation)
    compound = isinstance(expression, Sum | Difference | Product | Quotient)
    negative = isinstance(expression, Number) and expression.value < 0
    return notation.group(written) if compound or negative else written


def _long_sum(values: Sequence[float], term: Callable[[int], Expression], notation: Notation) -> str:
    shown = _largest([abs(value) for value in values])
    written: list[str] = []
    for index in shown:
        negative = isinstance(term(index), Number) and values[index] < 0
        text = write(term(index), notation)
        written.append(notation.group(text) if negative and written else text)
    if others := [value for index, value in enumerate(values) if index not in shown]:
        written.append(notation.rest(len(others), math.fsum(others)))
    return notation.sum(written)


def _softmax(softmax: Softmax, notation: Notation) -> str:
    """As a quotient of powers of e; the terms not shown are summed."""
    values = softmax.scores.values.tolist()
    shown = _largest(values, softmax.chosen)
    powers = [notation.power_of_e(notation.number(softmax.scores.number(index))) for index in shown]
    if others := [value for index, value in enumerate(values) if index not in shown]:
        powers.append(notation.rest(len(others), math.fsum(_exp(value) for value in others)))
    total = notation.sum(powers)
    chosen = notation.number(softmax.scores.number(softmax.chosen))
    if softmax.log:
        return notation.difference(chosen, notation.call("ln", total))
    below = total if isinstance(notation, Latex | MathML) or len(powers) == 1 else notation.group(total)
    return notation.quotient(notation.power_of_e(chosen), below)


def _largest(sizes: Sequence[float], always: int | None = None) -> list[int]:
    """The places of the largest, in their order; all of them when one more would not make the formula longer."""
    if len(sizes) <= SHOWN + 1:
        return list(range(len(sizes)))
    order = sorted(range(len(sizes)), key=lambda index: (index != always, -sizes[index]))
    return sorted(order[:SHOWN])


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
