"""The formula of one recorded number: equation, operands with their values, and a check that re-evaluates it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigError, nearest
from glassformer.explain.formula.expression import Expression, Number, Op, Reduction, TensorIndex, evaluate, leaves
from glassformer.explain.formula.notation import stack_rows, write
from glassformer.explain.formula.operands import Operands
from glassformer.explain.formula.operators import FUNCTIONS
from glassformer.explain.formula.table import axes_of, explained_taps, find_tap
from glassformer.layers.dropout import has_active_dropout
from glassformer.taps import Edit, Recording
from glassformer.text.decimals import decimal, difference

TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 5e-3}
"""Tolerances by the type that the model computed in, relative to the magnitude of the expression.

The check itself is in float64.
"""

ASIDE = (".encoding", ".segment", "mean")
"""Terms that a chain of formulas does not follow where another has a part."""


class AxisRecording(Recording):
    """The recorded tensors of ``model``, with the names of their axes."""

    def __init__(self, model: nn.Module, keep: str = "*", edits: Mapping[str, Edit] | None = None):
        super().__init__(model, keep, edits)
        self.model = model
        self.dropped = has_active_dropout(model)
        """True if dropout was on, so that no formula gives the numbers."""
        self._axes_of: dict[tuple[str, int], tuple[str, ...]] = {}
        """Axes by name and number of axes, as a formula asks for those of its operands many times."""

    def axes(self, name: str) -> tuple[str, ...]:
        """``("batch", "head", "query", "key")`` for attention weights."""
        tensor = self[name]
        key = name, tensor.ndim
        if key not in self._axes_of:
            self._axes_of[key] = axes_of(self.model, name, tensor)
        return self._axes_of[key]

    def at(self, name: str, **index: int) -> Tensor:
        """Part of ``name`` at ``index``, which fixes axes by name; axes of one entry are fixed if not named."""
        place = self.place(name, index)
        sizes = zip(self.axes(name), self[name].shape, strict=True)
        return self[name][tuple(place.get(axis, 0 if size == 1 else slice(None)) for axis, size in sizes)]

    def place(self, name: str, index: Mapping[str, int]) -> dict[str, int]:
        """``index``, counted from 0. A ``ConfigError`` names what is not an axis of ``name``, and what lies outside."""
        sizes = dict(zip(self.axes(name), self[name].shape, strict=True))
        for axis, chosen in index.items():
            if axis not in sizes:
                raise ConfigError(f"{name} has no axis {axis!r}; its axes are {', '.join(sizes)}")
            if not -sizes[axis] <= chosen < sizes[axis]:
                raise ConfigError(f"{axis}={chosen} is outside {name}; choose from 0 to {sizes[axis] - 1}")
        return {axis: chosen % sizes[axis] for axis, chosen in index.items()}


@dataclass(frozen=True)
class Check:
    """Comparison of a recorded number with the value of its formula, up to rounding errors."""

    recorded: float
    evaluated: float
    tolerance: float

    @property
    def difference(self) -> float:
        return 0.0 if self.recorded == self.evaluated else abs(self.recorded - self.evaluated)

    @property
    def passed(self) -> bool:
        return self.difference <= self.tolerance

    def __str__(self) -> str:
        mark = "✓" if self.passed else "✗"
        return f"{mark} {decimal(self.recorded)} (|Δ| {difference(self.difference)})"


@dataclass(frozen=True)
class Formula:
    """``place``: the explained number; ``equation``: in LaTeX; ``reference``: a section or equation of a paper."""

    place: TensorIndex
    value: float
    equation: str
    reference: str
    expression: Expression
    tolerance: float

    @property
    def check(self) -> Check:
        value, magnitude = evaluate(self.expression)
        return Check(self.value, value, self.tolerance * magnitude if math.isfinite(magnitude) else 0.0)

    @property
    def operands(self) -> list[Number]:
        """The numbers it is made of; those with a ``place`` have a formula of their own."""
        return leaves(self.expression)

    def text(self) -> str:
        """``weights[0,3,4,1] = exp(2.1) / (exp(2.1) + …) = ✓ 0.7420 (|Δ| 3e-8)``"""
        return f"{self.title} = {write(self.expression, 'text')} = {self.check}"

    def latex(self) -> str:
        return rf"{self.equation} = {write(self.expression, 'latex')} = {write(Number(self.value), 'latex')}"

    def mathml(self, stacked: bool = False) -> str:
        """A ``<math>`` element; numbers that have a formula of their own carry their place.

        ``stacked`` breaks long sums at their signs, and the line before the result of such a sum.
        """
        expression = write(self.expression, "stacked" if stacked else "mathml")
        result = f'<mo form="infix">=</mo>{write(Number(self.value), "mathml")}'
        if stacked and "<mtable" in expression:
            return f'<math display="block">{stack_rows([expression, result])}</math>'
        return f'<math display="block"><mrow>{expression}<mo>=</mo>{write(Number(self.value), "mathml")}</mrow></math>'

    @property
    def title(self) -> str:
        index = ", ".join(f"{axis} {number}" for axis, number in self.place.index if axis != "batch")
        return f"{self.place.name}[{index}]"

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return f"<figure>{self.mathml()}<figcaption>{self.title}: {self.reference}; {self.check}</figcaption></figure>"


def explain(trace: AxisRecording, name: str, **index: int) -> Formula:
    """The formula of ``name`` at ``index``, one number for each axis; ``batch`` is 0 when not given.

    Raises ``ConfigError`` for a name that was not recorded, an axis that it lacks, an index outside it, a tensor that
    has no rule, and a model that was recorded with dropout on, whose numbers no formula gives.
    """
    place = _place(trace, name, index)
    tap = name.rpartition(".")[2]
    if tap.startswith("states_"):
        raise ConfigError(
            f"{name} has no formula: an LSTM's gates are computed in one kernel, and none is recorded; "
            "explain what is computed from it"
        )
    row = find_tap(trace.model, name)
    if row is None or row.derive is None:
        raise ConfigError(f"{name} has no formula; {nearest(tap, explained_taps())}")
    if len(trace.all(name)) > 1:
        raise ConfigError(
            f"{name} was recorded {len(trace.all(name))} times; explain a trace of one forward pass, as examine() makes"
        )
    if trace.dropped:
        raise ConfigError("the model was recorded with dropout on; call model.eval() before the trace")
    derivation = row.derive(Operands(trace, place))
    tensor = trace[name]
    value = float(tensor[tuple(number for _, number in place.index)])
    tolerance = TOLERANCES.get(tensor.dtype, 0.0)
    reference = "; ".join(filter(None, (derivation.reference or row.reference, derivation.remark)))
    return Formula(place, value, derivation.formula or row.formula, reference, derivation.expression, tolerance)


def trace_back(trace: AxisRecording, formula: Formula) -> Iterator[Formula]:
    """``formula``, then that of its operand with the greatest part in it, down to what the model was given.

    A probability of a word leads so through logits, layers and attention to a row of the embedding and its one-hot;
    where a word and its position meet, to the word. It ends before what has no formula.
    """
    while True:
        yield formula
        place = _greatest(formula.expression)
        row = None if place is None else find_tap(trace.model, place.name)
        if place is None or row is None or row.derive is None:
            return
        formula = explain(trace, place.name, **dict(place.index))


def _greatest(expression: Expression) -> TensorIndex | None:
    """The recorded number with the greatest part in the value."""
    match expression:
        case Reduction("softmax" | "log_softmax", (scores,), chosen):
            return scores.number(chosen).place
        case Reduction():
            return _greatest(expression.term(int(abs(expression.terms).argmax())))
        case Op("sum", terms):
            ranked = sorted(terms, key=lambda term: -abs(evaluate(term)[0]))
            places = [place for term in ranked if (place := _greatest(term)) is not None]
            return min(places, key=lambda place: place.name.endswith(ASIDE), default=None)
        case Op("product", factors):
            return next(filter(None, map(_greatest, factors)), None)
        case Op(name, (argument,)) if name in FUNCTIONS:
            return _greatest(argument)
        case _:
            return next((leaf.place for leaf in leaves(expression) if leaf.place is not None), None)


def _place(trace: AxisRecording, name: str, index: dict[str, int]) -> TensorIndex:
    found = {"batch": 0, **trace.place(name, index)}
    for axis, size in zip(trace.axes(name), trace[name].shape, strict=True):
        if axis not in found:
            raise ConfigError(f"{name} is explained one number at a time; give {axis}, from 0 to {size - 1}")
    return TensorIndex(name, tuple((axis, found[axis]) for axis in trace.axes(name)))
