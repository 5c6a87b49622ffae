"""Rules of a layer: attention (section 3.2), feed-forward (3.3), the residual sum and the normalization (3.1)."""

import math

from torch import nn

from glassformer.errors import ConfigError
from glassformer.explain.formula.dataflow import input_of, keys_of, normalized, residual
from glassformer.explain.formula.expression import (
    Number,
    Vector,
    dot,
    op,
    softmax,
    squares,
    total,
)
from glassformer.explain.formula.operands import Derivation, Operands
from glassformer.layers.block import Stack
from glassformer.layers.feed_forward import ACTIVATION_RECORDS, Activation
from glassformer.layers.norm import RMSNorm
from glassformer.layers.position import Rotary
from glassformer.text.decimals import setting

RMS_NORM = "Zhang & Sennrich 2019, equation 4"


def projection(o: Operands) -> Derivation:
    axis, part = {"q": ("query", "query"), "k": ("key", "key"), "v": ("key", "value")}[o.tap]
    from_ = input_of(o.model, o.path) if o.tap == "q" else keys_of(o.model, o.path)
    x = o.vector(from_, position=o.index[axis])
    row = o.index["head"] * o.trace[o.place.name].size(-1) + o.last
    return Derivation(o.linear(x, f"{o.path}.{part}", row))


def rotated(o: Operands) -> Derivation:
    tap, axis = (o.tap.removeprefix("rotated_"), "query" if o.tap.endswith("q") else "key")
    width, dimension, position = o.trace[o.place.name].size(-1), o.index["d_k"], o.index[axis]
    rotary = o.model.get_submodule(f"{o.path}.rotary")
    assert isinstance(rotary, Rotary)
    even, odd = (o.number(f"{o.path}.{tap}", d_k=2 * (dimension // 2) + i) for i in (0, 1))
    wavelength = Number(rotary.theta ** (2 * (dimension // 2) / width), f"{setting(float(rotary.theta))}^(2i/d_k)")
    angle = op("quotient", Number(position, "position"), wavelength)
    if dimension % 2:
        terms = op("product", even, op("sin", angle)), op("product", odd, op("cos", angle))
        return Derivation(op("sum", *terms), r"x_{2i} \sin\theta + x_{2i+1} \cos\theta")
    return Derivation(op("difference", op("product", even, op("cos", angle)), op("product", odd, op("sin", angle))))


def scores(o: Operands) -> Derivation:
    turned = "rotated_" if f"{o.path}.rotated_q" in o.trace else ""
    q = o.numbers(f"{o.path}.{turned}q", "d_k")
    k = o.numbers(f"{o.path}.{turned}k", "d_k", head=_head_of_keys(o))
    return Derivation(dot(q, k), remark=_shared_keys(o))


def scaled_scores(o: Operands) -> Derivation:
    d_k = Number(o.trace[f"{o.path}.q"].size(-1), "d_k")
    return Derivation(op("quotient", o.number(f"{o.path}.scores"), op("root", d_k)))


def masked_scores(o: Operands) -> Derivation:
    visible = o.number(f"{o.path}.mask").value
    return Derivation(o.number(f"{o.path}.scaled_scores") if visible else Number(-math.inf, "−∞"))


def weights(o: Operands) -> Derivation:
    masked = f"{o.path}.masked_scores"
    row = o.numbers(masked if masked in o.trace else f"{o.path}.scaled_scores", "key")
    return Derivation(softmax(row, o.index["key"]))


def context(o: Operands) -> Derivation:
    values = o.numbers(f"{o.path}.v", "key", head=_head_of_keys(o))
    return Derivation(dot(o.numbers(f"{o.path}.weights", "key"), values), remark=_shared_keys(o))


def concatenated(o: Operands) -> Derivation:
    head, dimension = divmod(o.index["heads_d_v"], o.trace[f"{o.path}.v"].size(-1))
    return Derivation(o.number(f"{o.path}.context", head=head, d_v=dimension, query=o.index["position"]))


def attention_result(o: Operands) -> Derivation:
    return Derivation(o.linear(o.vector(f"{o.path}.concatenated"), f"{o.path}.output", o.last))


def feed_forward_result(o: Operands) -> Derivation:
    return Derivation(o.linear(o.vector(f"{o.path}.activated"), f"{o.path}.outer", o.last))


def gated_result(o: Operands) -> Derivation:
    return Derivation(o.linear(o.vector(f"{o.path}.product"), f"{o.path}.outer", o.last))


def inner(o: Operands) -> Derivation:
    return Derivation(o.linear(o.vector(input_of(o.model, o.path)), f"{o.path}.inner", o.last))


def gate(o: Operands) -> Derivation:
    return Derivation(o.linear(o.vector(input_of(o.model, o.path)), f"{o.path}.gate", o.last))


def activated(o: Operands) -> Derivation:
    return _activated(o, "inner")


def activated_gate(o: Operands) -> Derivation:
    return _activated(o, "gate")


def activated_transform(o: Operands) -> Derivation:
    function = _activation(o)
    dense = o.linear(o.vector("memory"), f"{o.path}.dense", o.last)
    return Derivation(op(function, dense), ACTIVATION_RECORDS[function].latex.replace("x", "z"))


def product(o: Operands) -> Derivation:
    return Derivation(op("product", o.number(f"{o.path}.activated"), o.number(f"{o.path}.inner")))


def residual_sum(o: Operands) -> Derivation:
    path = o.path.removesuffix("_norm")
    return Derivation(op("sum", o.number(residual(o.model, path)), o.number(f"{path}.result")))


def normed(o: Operands) -> Derivation:
    owner = o.model.get_submodule(o.path)
    norm = f"{o.path}.final_norm" if isinstance(owner, Stack) else f"{o.path}.norm"
    number, gain = o.number(normalized(o.model, norm)), o.parameter(f"{norm}.weight", o.last)
    if isinstance(o.model.get_submodule(norm), RMSNorm):
        standard = op("quotient", number, o.number(f"{norm}.root_mean_square"))
        formula = r"\frac{x}{\sqrt{\frac{1}{d} \sum_i x_i^2 + \epsilon}} \gamma"
        return Derivation(op("product", standard, *gain), formula, RMS_NORM)
    standard = op("quotient", op("difference", number, o.number(f"{norm}.mean")), o.number(f"{norm}.deviation"))
    return Derivation(op("sum", op("product", standard, *gain), *o.parameter(f"{norm}.bias", o.last)))


def mean(o: Operands) -> Derivation:
    x = o.vector(normalized(o.model, o.path))
    return Derivation(op("quotient", total(x), _width(x)))


def deviation(o: Operands) -> Derivation:
    x = o.vector(normalized(o.model, o.path))
    module = o.model.get_submodule(o.path)
    assert isinstance(module, nn.LayerNorm)
    middle, epsilon = o.number(f"{o.path}.mean"), Number(module.eps, "ε")
    return Derivation(op("root", op("sum", op("quotient", squares(x, middle), _width(x)), epsilon)))


def root_mean_square(o: Operands) -> Derivation:
    x = o.vector(normalized(o.model, o.path))
    module = o.model.get_submodule(o.path)
    assert isinstance(module, RMSNorm)
    mean_square, epsilon = op("quotient", squares(x), _width(x)), Number(module.eps or 0.0, "ε")
    return Derivation(op("root", op("sum", mean_square, epsilon)))


def _head_of_keys(o: Operands) -> int:
    """Head of the keys and values of a query head: a group shares one (Ainslie et al. 2023)."""
    return o.index["head"] // _group(o)


def _group(o: Operands) -> int:
    return o.trace[f"{o.path}.q"].size(1) // o.trace[f"{o.path}.k"].size(1)


def _shared_keys(o: Operands) -> str:
    """Remark on heads that share their keys; empty where each has its own."""
    group = _group(o)
    return "" if group == 1 else f"{group} heads share their keys (Ainslie et al. 2023)"


def _activated(o: Operands, tap: str) -> Derivation:
    function = _activation(o)
    return Derivation(op(function, o.number(f"{o.path}.{tap}")), ACTIVATION_RECORDS[function].latex)


def _activation(o: Operands) -> Activation:
    """Name of the activation of a module, by its function."""
    function = o.model.get_submodule(o.path).activation
    for name, record in ACTIVATION_RECORDS.items():
        if record.function is function:
            return name
    raise ConfigError(f"{o.path}: its activation has no formula; use one of {', '.join(ACTIVATION_RECORDS)}")


def _width(x: Vector) -> Number:
    return Number(len(x), "d_model")
