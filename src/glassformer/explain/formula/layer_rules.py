"""Rules of a layer: attention (section 3.2), feed-forward (3.3), the residual sum and the normalization (3.1)."""

import math

from torch import nn

from glassformer.errors import ConfigError
from glassformer.explain.formula.dataflow import input_of, keys_of, normalized, residual
from glassformer.explain.formula.expression import (
    Expression,
    Number,
    Vector,
    dot,
    op,
    softmax,
    squares,
    total,
)
from glassformer.explain.formula.operands import Derivation, Operands, given
from glassformer.layers.block import Stack
from glassformer.layers.feed_forward import ACTIVATION_RECORDS, Activation
from glassformer.layers.norm import RMSNorm
from glassformer.layers.position import Rotary


def projection(o: Operands) -> Derivation:
    axis, part = {"q": ("query", "query"), "k": ("key", "key"), "v": ("key", "value")}[o.tap]
    from_ = input_of(o.model, o.path) if o.tap == "q" else keys_of(o.model, o.path)
    x = o.vector(from_, position=o.index[axis])
    row = o.index["head"] * o.trace[o.place.name].size(-1) + o.last
    equation = rf"{o.tap} = x W^{o.tap.upper()} + b"
    return Derivation(equation, "section 3.2.2", o.linear(x, f"{o.path}.{part}", row))


def rotated(o: Operands) -> Derivation:
    tap, axis = (o.tap.removeprefix("rotated_"), "query" if o.tap.endswith("q") else "key")
    width, dimension, position = o.trace[o.place.name].size(-1), o.index["d_k"], o.index[axis]
    rotary = o.model.get_submodule(f"{o.path}.rotary")
    assert isinstance(rotary, Rotary)
    even, odd = (o.number(f"{o.path}.{tap}", d_k=2 * (dimension // 2) + i) for i in (0, 1))
    wavelength = Number(rotary.theta ** (2 * (dimension // 2) / width), f"{rotary.theta:g}^(2i/d_k)")
    angle = op("quotient", Number(position, "position"), wavelength)
    if dimension % 2:
        turned: Expression = op("sum", op("product", even, op("sin", angle)), op("product", odd, op("cos", angle)))
        return Derivation(r"x_{2i} \sin\theta + x_{2i+1} \cos\theta", "Su et al. 2021", turned)
    turned = op("difference", op("product", even, op("cos", angle)), op("product", odd, op("sin", angle)))
    return Derivation(r"x_{2i} \cos\theta - x_{2i+1} \sin\theta", "Su et al. 2021", turned)


def scores(o: Operands) -> Derivation:
    turned = "rotated_" if f"{o.path}.rotated_q" in o.trace else ""
    q = o.numbers(f"{o.path}.{turned}q", "d_k")
    k = o.numbers(f"{o.path}.{turned}k", "d_k", head=_head_of_keys(o))
    return Derivation(r"q \cdot k = \sum_i q_i k_i", _source(o, "section 3.2.1"), dot(q, k))


def scaled_scores(o: Operands) -> Derivation:
    d_k = Number(o.trace[f"{o.path}.q"].size(-1), "d_k")
    return Derivation(
        r"\frac{q \cdot k}{\sqrt{d_k}}", "equation 1", op("quotient", o.number(f"{o.path}.scores"), op("root", d_k))
    )


def mask(o: Operands) -> Derivation:
    return given(o, r"1 \text{ where the query may see the key}", "section 3.2.3")


def masked_scores(o: Operands) -> Derivation:
    visible = o.number(f"{o.path}.mask").value
    value: Expression = o.number(f"{o.path}.scaled_scores") if visible else Number(-math.inf, "−∞")
    return Derivation(r"\frac{q \cdot k}{\sqrt{d_k}} \text{ where visible, else } -\infty", "section 3.2.3", value)


def weights(o: Operands) -> Derivation:
    masked = f"{o.path}.masked_scores"
    row = o.numbers(masked if masked in o.trace else f"{o.path}.scaled_scores", "key")
    equation = r"\frac{e^{s_k}}{\sum_j e^{s_j}}"
    return Derivation(equation, "equation 1", softmax(row, o.index["key"]))


def context(o: Operands) -> Derivation:
    values = o.numbers(f"{o.path}.v", "key", head=_head_of_keys(o))
    return Derivation(r"\sum_k a_k v_k", _source(o, "equation 1"), dot(o.numbers(f"{o.path}.weights", "key"), values))


def concatenated(o: Operands) -> Derivation:
    head, dimension = divmod(o.index["heads_d_v"], o.trace[f"{o.path}.v"].size(-1))
    number = o.number(f"{o.path}.context", head=head, d_v=dimension, query=o.index["position"])
    return Derivation(r"\text{Concat}(head_1, \dots, head_h)", "section 3.2.2", number)


def attention_result(o: Operands) -> Derivation:
    x = o.vector(f"{o.path}.concatenated")
    equation = r"\text{Concat}(head_1, \dots, head_h) W^O + b"
    return Derivation(equation, "section 3.2.2", o.linear(x, f"{o.path}.output", o.last))


def feed_forward_result(o: Operands) -> Derivation:
    x = o.vector(f"{o.path}.activated")
    equation = r"\text{activated}(x W_1 + b_1) W_2 + b_2"
    return Derivation(equation, "equation 2", o.linear(x, f"{o.path}.outer", o.last))


def gated_result(o: Operands) -> Derivation:
    x = o.vector(f"{o.path}.product")
    equation = r"(\text{activated}(x W_{gate}) \odot x W_1) W_2"
    return Derivation(equation, "Shazeer 2020, equation 6", o.linear(x, f"{o.path}.outer", o.last))


def inner(o: Operands) -> Derivation:
    x = o.vector(input_of(o.model, o.path))
    return Derivation(r"x W_1 + b_1", "equation 2", o.linear(x, f"{o.path}.inner", o.last))


def gate(o: Operands) -> Derivation:
    x = o.vector(input_of(o.model, o.path))
    return Derivation(r"x W_{gate} + b", "Shazeer 2020", o.linear(x, f"{o.path}.gate", o.last))


def activated(o: Operands) -> Derivation:
    return _activated(o, "inner")


def activated_gate(o: Operands) -> Derivation:
    return _activated(o, "gate")


def activated_transform(o: Operands) -> Derivation:
    function = _activation(o)
    dense = o.linear(o.vector("memory"), f"{o.path}.dense", o.last)
    source = "Devlin et al. 2019, section 3.1; the linear transformation before it is not recorded by itself"
    return Derivation(ACTIVATION_RECORDS[function].latex.replace("x", "z"), source, op(function, dense))


def product(o: Operands) -> Derivation:
    factors = o.number(f"{o.path}.activated"), o.number(f"{o.path}.inner")
    return Derivation(r"\text{activated}(x W_{gate}) \odot x W_1", "Shazeer 2020", op("product", *factors))


def residual_sum(o: Operands) -> Derivation:
    path = o.path.removesuffix("_norm")
    terms = o.number(residual(o.model, path)), o.number(f"{path}.result")
    return Derivation(r"x + \text{Sublayer}(x)", "section 3.1", op("sum", *terms))


def normed(o: Operands) -> Derivation:
    owner = o.model.get_submodule(o.path)
    norm = f"{o.path}.final_norm" if isinstance(owner, Stack) else f"{o.path}.norm"
    number, gain = o.number(normalized(o.model, norm)), o.parameter(f"{norm}.weight", o.last)
    if isinstance(o.model.get_submodule(norm), RMSNorm):
        standard = op("quotient", number, o.number(f"{norm}.root_mean_square"))
        equation = r"\frac{x}{\sqrt{\frac{1}{d} \sum_i x_i^2 + \epsilon}} \gamma"
        return Derivation(equation, "Zhang & Sennrich 2019, equation 4", op("product", standard, *gain))
    standard = op("quotient", op("difference", number, o.number(f"{norm}.mean")), o.number(f"{norm}.deviation"))
    equation = r"\frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} \gamma + \beta"
    shift = o.parameter(f"{norm}.bias", o.last)
    return Derivation(equation, "Ba et al. 2016", op("sum", op("product", standard, *gain), *shift))


def mean(o: Operands) -> Derivation:
    x = o.vector(normalized(o.model, o.path))
    return Derivation(r"\mu = \frac{1}{d} \sum_i x_i", "Ba et al. 2016", op("quotient", total(x), _width(x)))


def deviation(o: Operands) -> Derivation:
    x = o.vector(normalized(o.model, o.path))
    module = o.model.get_submodule(o.path)
    assert isinstance(module, nn.LayerNorm)
    middle, epsilon = o.number(f"{o.path}.mean"), Number(module.eps, "ε")
    equation = r"\sqrt{\frac{1}{d} \sum_i (x_i - \mu)^2 + \epsilon}"
    return Derivation(
        equation, "Ba et al. 2016", op("root", op("sum", op("quotient", squares(x, middle), _width(x)), epsilon))
    )


def root_mean_square(o: Operands) -> Derivation:
    x = o.vector(normalized(o.model, o.path))
    module = o.model.get_submodule(o.path)
    assert isinstance(module, RMSNorm)
    mean_square, epsilon = op("quotient", squares(x), _width(x)), Number(module.eps or 0.0, "ε")
    equation = r"\sqrt{\frac{1}{d} \sum_i x_i^2 + \epsilon}"
    return Derivation(
        equation,
        "Zhang & Sennrich 2019, equation 4",
        op("root", op("sum", mean_square, epsilon)),
    )


def _head_of_keys(o: Operands) -> int:
    """Whose keys and values the head asks: a group shares one (Ainslie et al. 2023)."""
    return o.index["head"] // _group(o)


def _group(o: Operands) -> int:
    return o.trace[f"{o.path}.q"].size(1) // o.trace[f"{o.path}.k"].size(1)


def _source(o: Operands, section: str) -> str:
    group = _group(o)
    return section if group == 1 else f"{section}; {group} heads share their keys (Ainslie et al. 2023)"


def _activated(o: Operands, tap: str) -> Derivation:
    function = _activation(o)
    return Derivation(ACTIVATION_RECORDS[function].latex, "section 3.3", op(function, o.number(f"{o.path}.{tap}")))


def _activation(o: Operands) -> Activation:
    """Name of the activation of a module, by its function."""
    function = o.model.get_submodule(o.path).activation
    for name, record in ACTIVATION_RECORDS.items():
        if record.function is function:
            return name
    raise ConfigError(f"{o.path}: its activation has no formula; use one of {', '.join(ACTIVATION_RECORDS)}")


def _width(x: Vector) -> Number:
    return Number(len(x), "d_model")
