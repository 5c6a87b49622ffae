"""One number: its formula with the numbers in it, its check, and its operands as links."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape, unescape

import numpy as np
import torch
from markupsafe import Markup

from glassformer.errors import ConfigError
from glassformer.explain.example import Example
from glassformer.explain.formula.expression import Expression, Number, Op, Reduction, TensorIndex, evaluate, leaves
from glassformer.explain.formula.formula import Formula, explain
from glassformer.explain.formula.operators import OPS
from glassformer.text.decimals import decimal, precise
from glassformer.web.explorer.interventions import is_replaced
from glassformer.web.explorer.places import (
    grid_axes,
    head_count,
    head_in,
    labels_of,
    plain_name,
    select_index,
    tensor_of,
)
from glassformer.web.explorer.selection import Selection

MAX_TERMS = 12
"""Operands that are listed; the largest ones come first."""
MAX_FACTORS = 3


@dataclass(frozen=True)
class FormulaOperand:
    """A number of the formula; ``address`` is empty for a parameter, which was learned and not computed."""

    text: str
    value: str
    name: str
    address: str


@dataclass(frozen=True)
class Term:
    """A summand, its numbers with their common place, and the length of its bar from −100 to 100."""

    value: str
    label: str
    operands: tuple[FormulaOperand, ...]
    bar: int


@dataclass(frozen=True)
class CellView:
    title: str
    place: str
    value: float
    shortest: str
    """The shortest text that is this number in the type of the tensor."""
    mathml: Markup
    text: str
    latex: str
    python: str
    reference: str
    check: str
    passed: bool
    evaluated: str
    terms: tuple[Term, ...]
    others: str
    message: str = ""


def cell_of(example: Example, selection: Selection) -> CellView:
    """The formula of the selected number; a message where there is none."""
    name = tensor_of(selection)
    index = index_of(example, selection, name)
    place = _place_text(example, name, index)
    batch = {"batch": 0} if "batch" in example.trace.axes(name) else {}
    value = float(example.trace.at(name, **batch, **index))
    python = f'glassformer.explain(example.trace, "{name}", {", ".join(f"{k}={v}" for k, v in index.items())})'
    try:
        if is_replaced(selection.interventions, name, selection.head):
            raise ConfigError("This number was replaced, because its head is off; its formula does not apply.")
        formula = explain(example.trace, name, **index)
    except ConfigError as error:
        shortest, empty = _shortest(example, name, value), Markup("")
        texts = plain_name(name), place, value, shortest, empty, "", "", python, "", "", True, "", (), ""
        return CellView(*texts, message=str(error))
    terms = sorted(_terms(formula.expression), key=lambda term: -abs(term[0]))
    largest = max((abs(value) for value, _ in terms), default=0.0) or 1.0
    check = formula.check
    return CellView(
        plain_name(name),
        place,
        value,
        _shortest(example, name, value),
        _linked(formula, example, selection),
        formula.text(),
        formula.latex(),
        python,
        formula.reference,
        str(check),
        check.passed,
        precise(check.evaluated),
        tuple(_term(one, example, selection, largest) for one in terms[:MAX_TERMS]),
        f"{len(terms) - MAX_TERMS:,} further terms" if len(terms) > MAX_TERMS else "",
    )


def index_of(example: Example, selection: Selection, name: str) -> dict[str, int]:
    """Index of the selected number along the axes of its tensor."""
    chosen = dict(zip(grid_axes(example, name), (selection.row, selection.column), strict=False))
    index = {axis: value or 0 for axis, value in chosen.items()}
    if head_count(example, name):
        index["head"] = head_in(example, name, selection.head or 0)
    return index


def _shortest(example: Example, name: str, value: float) -> str:
    """The shortest text that is this number in the type of the tensor."""
    text = str(np.float32(value)) if example.trace[name].dtype == torch.float32 else repr(value)
    return text.replace("-", "−")


def _place_text(example: Example, name: str, index: dict[str, int]) -> str:
    """``query “elle”, key “she”, head 0``"""
    parts = []
    for axis, value in index.items():
        label = labels_of(example, name, axis)[1][value] if axis != "head" else None
        parts.append(f"{axis} {value}" if label is None or label.text == str(value) else f"{axis} {label.visible}")
    return ", ".join(parts)


def _terms(expression: Expression) -> Iterator[tuple[float, list[Number]]]:
    """Summands of an expression, with the numbers of each; a softmax has one for each score."""
    match expression:
        case Reduction("softmax" | "log_softmax"):
            (scores,) = expression.vectors
            values = scores.values
            for place in range(expression.size):
                number = scores.number(place)
                yield OPS["exp"].value([float(values[place] - values.max())]), [number]
        case Reduction():
            for place, value in enumerate(expression.terms.tolist()):
                yield value, leaves(expression.term(place))
        case Op("sum", args):
            for one in args:
                yield from _terms(one)
        case Number():
            yield expression.value, [expression]
        case Op(_, args):
            inner = [one for one in args if not isinstance(one, Number)]
            plain = [one for one in args if isinstance(one, Number)]
            yield from ((number.value, [number]) for number in plain)
            if all(isinstance(leaf, Number) for one in inner for leaf in _arguments(one)):
                yield from ((evaluate(one)[0], leaves(one)) for one in inner)
            else:
                for one in inner:
                    yield from _terms(one)


def _arguments(expression: Expression) -> tuple[Expression, ...]:
    return expression.args if isinstance(expression, Op) else (expression,)


def _term(term: tuple[float, list[Number]], example: Example, selection: Selection, largest: float) -> Term:
    value, numbers = term
    operands = tuple(_operand(number, example, selection) for number in numbers[:MAX_FACTORS])
    part = value / largest if abs(value) < float("inf") else 0.0
    label = next((one.name for one in operands if one.address), operands[0].name if operands else "")
    return Term(decimal(value), label, operands, round(100 * part))


def _operand(number: Number, example: Example, selection: Selection) -> FormulaOperand:
    if number.place is None:
        return FormulaOperand(decimal(number.value), repr(number.value), number.symbol or "constant", "")
    name = number.place.name
    address = select_index(selection, example, number.place).address
    axis, value = number.place.index[-1]
    label = labels_of(example, name, axis)[1][value].visible
    where = f"{axis} {value}" if label == str(value) else f"{axis} {label}"
    return FormulaOperand(decimal(number.value), repr(number.value), f"{name.rpartition('.')[2]}, {where}", address)


def _linked(formula: Formula, example: Example, selection: Selection) -> Markup:
    """The formula in MathML; a number that was computed leads to its own formula."""

    def link(found: re.Match[str]) -> str:
        name, _, rest = unescape(found[1]).rstrip("]").partition("[")
        index = tuple((axis, int(value)) for axis, value in (pair.split("=") for pair in rest.split(",")))
        address = select_index(selection, example, TensorIndex(name, index)).address
        return f'data-href="{escape(address)}" class="next" title="{escape(plain_name(name))}"'

    mathml = re.sub(r' title="[^"]*"(?= data-place)', "", formula.mathml())
    return Markup(re.sub(r'data-place="([^"]*)"', link, mathml))
