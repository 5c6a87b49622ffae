"""One number: its formula with the numbers in it, its check, and its operands as links."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape, unescape
from typing import NamedTuple

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
from glassformer.web.explorer.panels.wording import in_quotes
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
"""Terms or operands that are listed; the largest terms come first."""
MAX_FACTORS = 3
SOFTMAX = ("softmax", "log_softmax")


@dataclass(frozen=True)
class FormulaOperand:
    """A number of the formula; ``address`` is empty for a parameter, which was learned and not computed."""

    text: str
    value: str
    name: str
    address: str


@dataclass(frozen=True)
class Term:
    """A summand, its numbers with their common place, and the length of its bar from −100 to 100.

    ``separator`` stands between the numbers: ``·`` if the term is their product, otherwise a comma.
    """

    value: str
    label: str
    operands: tuple[FormulaOperand, ...]
    separator: str
    bar: int


class _Part(NamedTuple):
    """A term of a sum, or an operand, before it is written."""

    value: float
    numbers: list[Number]
    separator: str


@dataclass(frozen=True)
class CellView:
    title: str
    place: str
    value: float
    shortest: str
    """The shortest text that is this number in the type of the tensor."""
    mathml: Markup
    text: str
    reference: str
    check: str
    passed: bool
    evaluated: str
    terms_title: str
    terms: tuple[Term, ...]
    others: str
    has_bars: bool = True
    """True for the terms of a sum, which can be compared; operands have no bars."""
    message: str = ""


def cell_of(example: Example, selection: Selection) -> CellView:
    """The formula of the selected number; a message where there is none."""
    name = tensor_of(selection)
    index = index_of(example, selection, name)
    place = _place_text(example, name, index)
    batch = {"batch": 0} if "batch" in example.trace.axes(name) else {}
    value = float(example.trace.at(name, **batch, **index))
    try:
        if is_replaced(selection.interventions, name, selection.head, selection.row or 0):
            raise ConfigError("This number was replaced by an intervention; its formula does not apply.")
        formula = explain(example.trace, name, **index)
    except ConfigError as error:
        shortest, empty = _shortest(example, name, value), Markup("")
        texts = plain_name(name), place, value, shortest, empty, "", "", "", True, "", "", (), ""
        return CellView(*texts, message=str(error))
    terms_title, parts = parts_of(formula.expression)
    largest = max((abs(part.value) for part in parts), default=0.0) or 1.0
    further = len(parts) - MAX_TERMS
    check = formula.check
    return CellView(
        plain_name(name),
        place,
        value,
        _shortest(example, name, value),
        _linked(formula, example, selection),
        formula.text(),
        formula.reference,
        str(check),
        check.passed,
        precise(check.evaluated),
        terms_title,
        tuple(_term(one, example, selection, largest) for one in parts[:MAX_TERMS]),
        f"{further:,} further {'one' if further == 1 else 'ones'}" if further > 0 else "",
        has_bars=_sum_in(formula.expression) is not None,
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
        parts.append(f"head {value}" if axis == "head" else _label_text(example, name, axis, value))
    return ", ".join(parts)


def _label_text(example: Example, name: str, axis: str, value: int) -> str:
    """``query “elle”``, ``vocab “elle”`` or ``d_model 3``."""
    label = labels_of(example, name, axis)[1][value]
    return f"{axis} {in_quotes(label) if axis == 'vocab' else label.plain}"


def parts_of(expression: Expression) -> tuple[str, list[_Part]]:
    """Title and parts of a formula: the terms of a sum, largest first; of another formula its operands."""
    summed = _sum_in(expression)
    if summed is None:
        numbers = dict.fromkeys(leaves(expression))
        parts = [_Part(number.value, [number], "") for number in numbers]
        return "Operands" if len(parts) > 1 else "Its operand", parts
    parts = sorted(_terms(summed), key=lambda part: -abs(part.value))
    if len(parts) == 1:
        return "Its operand" if len(parts[0].numbers) == 1 else "Its term", parts
    if isinstance(summed, Reduction) and summed.kind in SOFTMAX:
        return "Terms exp(score − largest score), largest first", parts
    return "Its terms, largest first" if summed is expression else "Terms of its sum, largest first", parts


def _sum_in(expression: Expression) -> Expression | None:
    """The one sum of terms that an expression is, or that it applies functions and constants to; None for others."""
    match expression:
        case Reduction():
            return expression
        case Op("sum", args) if all(map(_is_term, args)):
            return expression
        case Op(_, args):
            parts = [one for one in args if not isinstance(one, Number)]
            return _sum_in(parts[0]) if len(parts) == 1 else None
    return None


def _is_term(expression: Expression) -> bool:
    match expression:
        case Reduction(kind):
            return kind not in SOFTMAX
        case Op("product", args):
            return all(isinstance(one, Number) for one in args)
    return isinstance(expression, Number)


def _terms(expression: Expression) -> Iterator[_Part]:
    """Terms of a sum; a softmax has one for each score."""
    match expression:
        case Reduction(kind, (scores,)) if kind in SOFTMAX:
            largest = float(scores.values.max())
            for place, value in enumerate(scores.values.tolist()):
                yield _Part(OPS["exp"].value([value - largest]), [scores.number(place)], "")
        case Reduction(kind):
            for place, value in enumerate(expression.terms.tolist()):
                yield _Part(value, leaves(expression.term(place)), "·" if kind == "dot" else ",")
        case Op("sum", args):
            for one in args:
                yield from _terms(one)
        case _:
            yield _Part(evaluate(expression)[0], leaves(expression), "·")


def _term(part: _Part, example: Example, selection: Selection, largest: float) -> Term:
    operands = tuple(_operand(number, example, selection) for number in part.numbers[:MAX_FACTORS])
    share = part.value / largest if abs(part.value) < float("inf") else 0.0
    label = next((one.name for one in operands if one.address), operands[0].name if operands else "")
    return Term(decimal(part.value), label, operands, part.separator, round(100 * share))


def _operand(number: Number, example: Example, selection: Selection) -> FormulaOperand:
    if number.place is None:
        return FormulaOperand(decimal(number.value), repr(number.value), _parameter_name(number.symbol), "")
    name = number.place.name
    address = select_index(selection, example, number.place).address
    where = _label_text(example, name, *number.place.index[-1])
    return FormulaOperand(decimal(number.value), repr(number.value), f"{name.rpartition('.')[2]}, {where}", address)


def _parameter_name(symbol: str) -> str:
    """``norm.weight[1]`` of a parameter of the module, without the path of the module."""
    path, bracket, index = symbol.partition("[")
    return ".".join(path.split(".")[-2:]) + bracket + index or "constant"


def _linked(formula: Formula, example: Example, selection: Selection) -> Markup:
    """The formula in MathML; a number that was computed leads to its own formula."""

    def link(found: re.Match[str]) -> str:
        name, _, rest = unescape(found[1]).rstrip("]").partition("[")
        index = tuple((axis, int(value)) for axis, value in (pair.split("=") for pair in rest.split(",")))
        address = select_index(selection, example, TensorIndex(name, index)).address
        return f'data-href="{escape(address)}" class="next" title="{escape(plain_name(name))}"'

    mathml = re.sub(r' title="[^"]*"(?= data-place)', "", formula.mathml(stacked=True))
    return Markup(re.sub(r'data-place="([^"]*)"', link, mathml))
