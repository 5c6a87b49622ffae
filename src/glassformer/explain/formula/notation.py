"""An expression with its numbers, written as text, LaTeX or MathML.

Long sums show their largest terms, in their order, and the sum of the others: ``… + 60 further terms = 0.0132``.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape, unescape
from typing import Literal

from glassformer.explain.formula.expression import Expression, Number, Op, Reduction, evaluate
from glassformer.explain.formula.operators import ATOMIC, OPS
from glassformer.text.decimals import decimal

MAX_TERMS = 4
"""Maximum number of terms of a long sum that are written out."""

ROW_CHARACTERS = 26
"""Characters of a row of a stacked sum; it fits a window of 390 pixels."""

Notation = Literal["text", "latex", "mathml", "stacked"]
"""Text is for a terminal and a screen reader, LaTeX (with amsmath) for a paper, MathML for a page.

``stacked`` is MathML that breaks long sums at their signs, which browsers do not do by themselves.
"""


def latex_decimal(value: float) -> str:
    """In brackets where it has a power of ten, which may be raised to another."""
    figure, _, exponent = decimal(value).replace("−", "-").replace("∞", r"\infty ").partition("e")
    return rf"\left({figure} \cdot 10^{{{int(exponent)}}}\right)" if exponent else figure


def mathml_number(number: Number) -> str:
    """Mark a number that has a formula of its own with its index, so that a click can go there."""
    title = f' title="{escape(number.symbol)}"' if number.symbol else ""
    place = ""
    if number.place is not None:
        index = ",".join(f"{axis}={value}" for axis, value in number.place.index)
        place = f' data-place="{escape(number.place.name)}[{escape(index)}]"'
    return f"<mn{title}{place}>{decimal(number.value)}</mn>"


def _terms(count: int) -> str:
    return "term" if count == 1 else "terms"


def _mathml_omitted(count: int, total: float) -> str:
    return f"<munder><mo>…</mo><mtext>{count:,} further {_terms(count)} = {decimal(total)}</mtext></munder>"


NUMBERS: dict[Notation, Callable[[Number], str]] = {
    "text": lambda number: decimal(number.value),
    "latex": lambda number: latex_decimal(number.value),
    "mathml": mathml_number,
    "stacked": mathml_number,
}
GROUPS: dict[Notation, str] = {
    "text": "({})",
    "latex": r"\left({}\right)",
    "mathml": "<mrow><mo>(</mo>{}<mo>)</mo></mrow>",
    "stacked": "<mrow><mo>(</mo>{}<mo>)</mo></mrow>",
}
OMITTED: dict[Notation, Callable[[int, float], str]] = {
    "text": lambda count, total: f"… {count:,} further {_terms(count)} = {decimal(total)}",
    "latex": lambda count, total: (
        rf"\underbrace{{\dots}}_{{{count}\text{{ further {_terms(count)}}} = {latex_decimal(total)}}}"
    ),
    "mathml": _mathml_omitted,
    "stacked": _mathml_omitted,
}


def write(expression: Expression, notation: Notation) -> str:
    """The expression in ``notation``."""
    return _write(expression, notation).text


@dataclass(frozen=True)
class _Operand:
    """A written operand; ``grouped`` is the same in brackets if it needs them."""

    text: str
    grouped: str

    def __format__(self, spec: str) -> str:
        return self.grouped if spec == "g" else self.text


class _Operands(tuple[str, ...]):
    """Written operands, joined by the sign that a template gives."""

    __slots__ = ()

    def __format__(self, sign: str) -> str:
        return sign.join(self)


def _write(expression: Expression, notation: Notation) -> _Operand:
    match expression:
        case Number(value):
            return _operand(NUMBERS[notation](expression), value < 0, notation)
        case Op("sum", args):
            text = _long_sum([evaluate(term)[0] for term in args], args.__getitem__, notation)
            return _operand(text, True, notation)
        case Op(name, args):
            text = _apply(name, [_write(arg, notation) for arg in args], notation)
            return _operand(text, OPS[name].precedence < ATOMIC, notation)
        case Reduction("softmax" | "log_softmax"):
            return _operand(_softmax(expression, notation), False, notation)
        case Reduction():
            return _operand(_long_sum(expression.terms.tolist(), expression.term, notation), False, notation)


def _operand(text: str, compound: bool, notation: Notation) -> _Operand:
    return _Operand(text, GROUPS[notation].format(text) if compound else text)


def _apply(name: str, operands: Sequence[_Operand], notation: Notation) -> str:
    template: str = getattr(OPS[name], "mathml" if notation == "stacked" else notation)
    texts, grouped = (_Operands(getattr(one, side) for one in operands) for side in ("text", "grouped"))
    return template.format(*operands, all=texts, grouped=grouped)


def _sum(terms: Sequence[str], notation: Notation) -> str:
    if notation == "stacked" and sum(map(_width, terms)) + 2 * len(terms) > ROW_CHARACTERS:
        return _stacked_sum(terms)
    return _apply("sum", [_Operand(term, term) for term in terms], notation)


def _stacked_sum(terms: Sequence[str]) -> str:
    """Rows of as many terms as fit; each further row begins with its sign."""
    rows, width = [terms[0]], _width(terms[0])
    for term in terms[1:]:
        width += _width(term) + 2
        if width > ROW_CHARACTERS:
            rows.append("")
            width = _width(term) + 2
        rows[-1] += f'<mo form="infix">+</mo>{term}'
    return stack_rows(rows)


def stack_rows(rows: Sequence[str]) -> str:
    """Rows of MathML, one below the other."""
    lines = "".join(f"<mtr><mtd><mrow>{row}</mrow></mtd></mtr>" for row in rows)
    return f'<mtable class="rows">{lines}</mtable>'


def _width(mathml: str) -> int:
    """Characters of a formula; those of a small text count for less."""
    small = sum(len(unescape(text)) for text in re.findall("<mtext>([^<]*)</mtext>", mathml))
    return len(unescape(re.sub("<[^>]*>", "", mathml))) - small // 3


def _long_sum(values: Sequence[float], term: Callable[[int], Expression], notation: Notation) -> str:
    """A negative number behind a sign is grouped, a negative product is not."""
    largest = _largest([abs(value) for value in values])
    written: list[str] = []
    for index in largest:
        operand, is_number = _write(term(index), notation), isinstance(term(index), Number)
        written.append(operand.grouped if is_number and written else operand.text)
    if others := [value for index, value in enumerate(values) if index not in largest]:
        written.append(OMITTED[notation](len(others), math.fsum(others)))
    return _sum(written, notation)


def _softmax(expression: Reduction, notation: Notation) -> str:
    """A quotient of powers of e; the smaller terms are summed."""
    (scores,), chosen = expression.vectors, expression.chosen
    values = scores.values.tolist()
    largest = _largest(values, chosen)
    powers = [write(Op("exp", (scores.number(index),)), notation) for index in largest]
    if others := [value for index, value in enumerate(values) if index not in largest]:
        powers.append(OMITTED[notation](len(others), math.fsum(OPS["exp"].value([value]) for value in others)))
    below = _operand(_sum(powers, notation), len(powers) > 1, notation)
    if expression.kind == "log_softmax":
        logarithm = _apply("ln", [below], notation)
        return _apply("difference", [_write(scores.number(chosen), notation), _Operand(logarithm, logarithm)], notation)
    return _apply("quotient", [_write(Op("exp", (scores.number(chosen),)), notation), below], notation)


def _largest(sizes: Sequence[float], always: int | None = None) -> list[int]:
    """Indices of the largest, in their order; all of them when one more would not make the formula longer."""
    if len(sizes) <= MAX_TERMS + 1:
        return list(range(len(sizes)))
    order = sorted(range(len(sizes)), key=lambda index: (index != always, -sizes[index]))
    return sorted(order[:MAX_TERMS])
