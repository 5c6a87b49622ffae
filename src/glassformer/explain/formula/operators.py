"""The operators of expressions: the value, magnitude, precedence and notations of each.

A notation is a template. ``{0}`` is an operand, ``{0:g}`` the same in brackets where it would otherwise be read as
something else. ``{all: + }`` joins all operands by a sign, ``{grouped: · }`` joins them with brackets where needed.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassformer.layers.feed_forward import ACTIVATION_RECORDS

ADDITIVE, MULTIPLICATIVE, ATOMIC = range(3)
"""Precedences; what is not atomic is grouped as an operand of a product, a power or a difference."""

LATEX_FUNCTIONS = {"sin", "cos", "tanh", "ln"}
"""Functions that LaTeX has a command for."""

Values = Sequence[float]
Array = NDArray[np.float64]


class Operator(NamedTuple):
    """``magnitude`` is given values, magnitudes and result: the result with nothing canceling."""

    value: Callable[[Values], float]
    magnitude: Callable[[Values, Values, float], float]
    precedence: int
    text: str
    latex: str
    mathml: str


def _function(name: str, value: Callable[[float], float]) -> Operator:
    """A function of one argument, in its notation with brackets."""
    command = rf"\{name}" if name in LATEX_FUNCTIONS else rf"\operatorname{{{{{name.replace('_', ' ')}}}}}"
    return Operator(
        lambda values: value(values[0]),
        lambda values, sizes, result: max(abs(result), sizes[0]),
        ATOMIC,
        f"{name}({{0}})",
        rf"{command}\left({{0}}\right)",
        f"<mrow><mi>{name}</mi><mo>(</mo>{{0}}<mo>)</mo></mrow>",
    )


FUNCTIONS: dict[str, Callable[[float], float]] = {
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
    "ln": math.log,
    **{name: record.definition for name, record in ACTIVATION_RECORDS.items()},
}

OPS: dict[str, Operator] = {
    "sum": Operator(
        math.fsum,
        lambda values, sizes, result: math.fsum(sizes),
        ADDITIVE,
        "{all: + }",
        "{all: + }",
        "<mrow>{all:<mo>+</mo>}</mrow>",
    ),
    "difference": Operator(
        lambda values: values[0] - values[1],
        lambda values, sizes, result: sizes[0] + sizes[1],
        ADDITIVE,
        "{0} − {1:g}",
        "{0} - {1:g}",
        "<mrow>{0}<mo>−</mo>{1:g}</mrow>",
    ),
    "product": Operator(
        math.prod,
        lambda values, sizes, result: math.prod(sizes),
        MULTIPLICATIVE,
        "{grouped: · }",
        r"{grouped: \cdot }",
        "<mrow>{grouped:<mo>·</mo>}</mrow>",
    ),
    "quotient": Operator(
        lambda values: values[0] / values[1],
        lambda values, sizes, result: sizes[0] / abs(values[1]),
        MULTIPLICATIVE,
        "{0:g} / {1:g}",
        r"\frac{{{0}}}{{{1}}}",
        "<mfrac><mrow>{0}</mrow><mrow>{1}</mrow></mfrac>",
    ),
    "root": Operator(
        lambda values: math.sqrt(values[0]),
        lambda values, sizes, result: math.sqrt(sizes[0]),
        ATOMIC,
        "√({0})",
        r"\sqrt{{{0}}}",
        "<msqrt>{0}</msqrt>",
    ),
    "square": Operator(
        lambda values: values[0] * values[0],
        lambda values, sizes, result: sizes[0] * sizes[0],
        ATOMIC,
        "{0:g}²",
        "{0:g}^2",
        "<msup><mrow>{0:g}</mrow><mn>2</mn></msup>",
    ),
    "exp": Operator(
        lambda values: math.exp(values[0]) if values[0] < 700 else math.inf,
        lambda values, sizes, result: max(abs(result), sizes[0]),
        ATOMIC,
        "exp({0})",
        "e^{{{0}}}",
        "<msup><mi>e</mi><mrow>{0}</mrow></msup>",
    ),
    **{name: _function(name, value) for name, value in FUNCTIONS.items()},
}


class Reducer(NamedTuple):
    """A sum of terms: their values, and the operations that make one from an entry of each vector."""

    terms: Callable[..., Array]
    magnitudes: Callable[..., Array]
    operations: tuple[str, ...]

    def evaluate(self, vectors: Sequence[Array], chosen: int) -> tuple[float, float]:
        return float(self.terms(*vectors).sum()), float(self.magnitudes(*vectors).sum())


class SoftmaxReducer(NamedTuple):
    """exp(scores[chosen]) / Σ exp(scores), evaluated without overflow; or its logarithm. A term is a score."""

    log: bool
    operations: tuple[str, ...] = ()

    def terms(self, scores: Array) -> Array:
        return scores

    def evaluate(self, vectors: Sequence[Array], chosen: int) -> tuple[float, float]:
        (scores,) = vectors
        powers = np.exp(scores - scores.max())
        if self.log:
            value = float(scores[chosen] - scores.max() - np.log(powers.sum()))
            return value, abs(value) + float(np.abs(scores[np.isfinite(scores)]).max())
        return float(powers[chosen] / powers.sum()), 1.0


REDUCTIONS: dict[str, Reducer | SoftmaxReducer] = {
    "dot": Reducer(lambda a, b: a * b, lambda a, b: np.abs(a * b), ("product",)),
    "total": Reducer(lambda a: a, np.abs, ()),
    "squares": Reducer(np.square, np.square, ("square",)),
    "squared_deviations": Reducer(
        lambda a, center: np.square(a - center),
        lambda a, center: np.square(np.abs(a) + np.abs(center)),
        ("difference", "square"),
    ),
    "softmax": SoftmaxReducer(log=False),
    "log_softmax": SoftmaxReducer(log=True),
}
