"""One rule for each operation: from a recorded number to the expression that gives it, with its operands.

A rule's law is the formula in general, in LaTeX; with it goes the section or equation of the paper that states it.
"""

import math
from collections.abc import Callable

from torch import nn

from glassformer.explain.expression import (
    Call,
    Difference,
    Dot,
    Expression,
    Number,
    Product,
    Quotient,
    Root,
    Softmax,
    Squares,
    Sum,
    Total,
    Vector,
)
from glassformer.explain.operands import Derivation, Operands
from glassformer.explain.wiring import asked, entering, leaving, residual, residual_stream
from glassformer.layers.feed_forward import FeedForward
from glassformer.layers.position import Sinusoidal

Rule = Callable[[Operands], Derivation]


def _one_hot(o: Operands) -> Derivation:
    return _given(o, r"1 \text{ where } v = \text{id}(\text{token}_p)\text{, else } 0", "3.4; the tokenizer gives ids")


def _tokens(o: Operands) -> Derivation:
    one_hot, dimension = o.numbers(f"{o.path}.one_hot", "vocab"), o.index["d_model"]
    chosen = one_hot.values.nonzero()[0].tolist()  # all others contribute 0
    terms = tuple(Product((one_hot.number(v), *o.parameter(f"{o.path}.weight", v, dimension))) for v in chosen)
    return Derivation(r"\sum_v \text{onehot}_{p,v} E_{v,d}", "section 3.4", Sum(terms))


def _scaled(o: Operands) -> Derivation:
    root = Root(Number(o.trace[o.place.name].size(-1), "d_model"))
    return Derivation(r"E_{p,d} \sqrt{d_{model}}", "section 3.4", Product((o.number(f"{o.path}.tokens"), root)))


def _encoding(o: Operands) -> Derivation:
    position, dimension = o.index["position"], o.index["d_model"]
    module = o.model.get_submodule(o.path).position
    if not isinstance(module, Sinusoidal):
        return Derivation(
            r"P_{p,d}", "section 3.5, learned", o.parameter(f"{o.path}.position.weight", position, dimension)[0]
        )
    pair = 2 * (dimension // 2)
    wavelength = Number(10000.0 ** (pair / module.d_model), f"10000^({pair}/{module.d_model})")
    angle = Quotient(Number(position, "position"), wavelength)
    function = "cos" if dimension % 2 else "sin"
    law = rf"\{function}\left(\frac{{p}}{{10000^{{2i/d_{{model}}}}}}\right)"
    return Derivation(law, "section 3.5", Call(function, angle))


def _positioned(o: Operands) -> Derivation:
    terms = o.number(f"{o.path}.scaled"), o.number(f"{o.path}.encoding")
    return Derivation(r"x_{p,d} = E_{p,d} \sqrt{d_{model}} + PE_{p,d}", "sections 3.4, 3.5", Sum(terms))


def _projection(o: Operands) -> Derivation:
    axis, part = {"q": ("query", "query"), "k": ("key", "key"), "v": ("key", "value")}[o.tap]
    from_ = entering(o.model, o.path) if o.tap == "q" else asked(o.model, o.path)
    x = o.numbers(from_, "d_model", position=o.index[axis])
    width = o.trace[o.place.name].size(-1)
    row = o.index["head"] * width + o.index["d_v" if o.tap == "v" else "d_k"]
    law = rf"{o.tap} = x W^{o.tap.upper()} + b"
    return Derivation(law, "section 3.2.2", o.linear(x, f"{o.path}.{part}", row))


def _rotated(o: Operands) -> Derivation:
    tap, axis = (o.tap.removeprefix("rotated_"), "query" if o.tap.endswith("q") else "key")
    width, dimension, position = o.trace[o.place.name].size(-1), o.index["d_k"], o.index[axis]
    even, odd = (o.number(f"{o.path}.{tap}", d_k=2 * (dimension // 2) + i) for i in (0, 1))
    angle = Quotient(Number(position, "position"), Number(10000.0 ** (2 * (dimension // 2) / width), "10000^(2i/d_k)"))
    if dimension % 2:
        turned: Expression = Sum((Product((even, Call("sin", angle))), Product((odd, Call("cos", angle)))))
        return Derivation(r"x_{2i} \sin\theta + x_{2i+1} \cos\theta", "Su et al. 2021", turned)
    turned = Difference(Product((even, Call("cos", angle))), Product((odd, Call("sin", angle))))
    return Derivation(r"x_{2i} \cos\theta - x_{2i+1} \sin\theta", "Su et al. 2021", turned)


def _scores(o: Operands) -> Derivation:
    turned = "rotated_" if f"{o.path}.rotated_q" in o.trace else ""
    q, k = (o.numbers(f"{o.path}.{turned}{letter}", "d_k") for letter in ("q", "k"))
    return Derivation(r"q \cdot k = \sum_i q_i k_i", "section 3.2.1", Dot(q, k))


def _scaled_scores(o: Operands) -> Derivation:
    d_k = Number(o.trace[f"{o.path}.q"].size(-1), "d_k")
    return Derivation(r"\frac{q \cdot k}{\sqrt{d_k}}", "equation 1", Quotient(o.number(f"{o.path}.scores"), Root(d_k)))


def _mask(o: Operands) -> Derivation:
    return _given(o, r"1 \text{ where the query may see the key}", "section 3.2.3")


def _masked_scores(o: Operands) -> Derivation:
    visible = o.number(f"{o.path}.mask").value
    value: Expression = o.number(f"{o.path}.scaled_scores") if visible else Number(-math.inf, "−∞")
    return Derivation(r"\frac{q \cdot k}{\sqrt{d_k}} \text{ where visible, else } -\infty", "section 3.2.3", value)


def _weights(o: Operands) -> Derivation:
    masked = f"{o.path}.masked_scores"
    scores = o.numbers(masked if masked in o.trace else f"{o.path}.scaled_scores", "key")
    law = r"\frac{e^{s_k}}{\sum_j e^{s_j}}"
    return Derivation(law, "equation 1", Softmax(scores, o.index["key"]))


def _context(o: Operands) -> Derivation:
    pairs = Dot(o.numbers(f"{o.path}.weights", "key"), o.numbers(f"{o.path}.v", "key"))
    return Derivation(r"\sum_k a_k v_k", "equation 1", pairs)


def _concatenated(o: Operands) -> Derivation:
    head, dimension = divmod(o.index["heads_d_v"], o.trace[f"{o.path}.v"].size(-1))
    number = o.number(f"{o.path}.context", head=head, d_v=dimension, query=o.index["position"])
    return Derivation(r"\text{Concat}(head_1, \dots, head_h)", "section 3.2.2", number)


def _result(o: Operands) -> Derivation:
    dimension = o.index["d_model"]
    if o.path.endswith("feed_forward"):
        x = o.numbers(f"{o.path}.activated", "d_ff")
        law = r"\text{activated}(x W_1 + b_1) W_2 + b_2"
        return Derivation(law, "equation 2", o.linear(x, f"{o.path}.outer", dimension))
    x = o.numbers(f"{o.path}.concatenated", "heads_d_v")
    law = r"\text{Concat}(head_1, \dots, head_h) W^O + b"
    return Derivation(law, "section 3.2.2", o.linear(x, f"{o.path}.output", dimension))


def _inner(o: Operands) -> Derivation:
    x = o.numbers(entering(o.model, o.path), "d_model")
    return Derivation(r"x W_1 + b_1", "equation 2", o.linear(x, f"{o.path}.inner", o.index["d_ff"]))


def _activated(o: Operands) -> Derivation:
    module = o.model.get_submodule(o.path)
    assert isinstance(module, FeedForward)
    function = getattr(module.activation, "__name__", "")
    law = {"relu": r"\max(0, x)", "gelu": r"x \Phi(x)", "silu": r"x / (1 + e^{-x})"}[function]
    return Derivation(law, "section 3.3", Call(function, o.number(f"{o.path}.inner")))


def _sum(o: Operands) -> Derivation:
    path = o.path.removesuffix("_norm")
    terms = o.number(residual(o.model, path)), o.number(f"{path}.result")
    return Derivation(r"x + \text{Sublayer}(x)", "section 3.1", Sum(terms))


def _normed(o: Operands) -> Derivation:
    norm = f"{o.path}.final_norm" if o.path in ("encoder", "decoder") else f"{o.path}.norm"
    dimension = o.index["d_model"]
    centred = Difference(o.number(_normalised(o.model, norm)), o.number(f"{norm}.mean"))
    standard = Quotient(centred, o.number(f"{norm}.deviation"))
    gain, shift = (o.parameter(f"{norm}.{name}", dimension) for name in ("weight", "bias"))
    law = r"\frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} \gamma + \beta"
    return Derivation(law, "Ba et al. 2016", Sum((Product((standard, *gain)), *shift)))


def _mean(o: Operands) -> Derivation:
    x = o.numbers(_normalised(o.model, o.path), "d_model")
    return Derivation(r"\mu = \frac{1}{d} \sum_i x_i", "Ba et al. 2016", Quotient(Total(x), _width(x)))


def _deviation(o: Operands) -> Derivation:
    x = o.numbers(_normalised(o.model, o.path), "d_model")
    module = o.model.get_submodule(o.path)
    assert isinstance(module, nn.LayerNorm)
    mean, epsilon = o.number(f"{o.path}.mean"), Number(module.eps, "ε")
    law = r"\sqrt{\frac{1}{d} \sum_i (x_i - \mu)^2 + \epsilon}"
    return Derivation(law, "Ba et al. 2016", Root(Sum((Quotient(Squares(x, mean), _width(x)), epsilon))))


def _memory(o: Operands) -> Derivation:
    return Derivation(r"\text{Encoder}(x)", "section 3.1", o.number(leaving(o.model, "encoder")))


def _logits(o: Operands) -> Derivation:
    x = o.numbers(leaving(o.model, "decoder"), "d_model")
    return Derivation(r"x W + b", "section 3.4", o.linear(x, o.path, o.index["vocab"]))


def _probabilities(o: Operands) -> Derivation:
    logits, log = o.numbers(f"{o.path}.logits", "vocab"), o.tap == "log_probabilities"
    law = r"z_w - \ln \sum_v e^{z_v}" if log else r"\frac{e^{z_w}}{\sum_v e^{z_v}}"
    return Derivation(law, "section 3.4", Softmax(logits, o.index["vocab"], log))


RULES: dict[str, Rule] = {
    "one_hot": _one_hot,
    "tokens": _tokens,
    "scaled": _scaled,
    "encoding": _encoding,
    "positioned": _positioned,
    "q": _projection,
    "k": _projection,
    "v": _projection,
    "rotated_q": _rotated,
    "rotated_k": _rotated,
    "scores": _scores,
    "scaled_scores": _scaled_scores,
    "mask": _mask,
    "masked_scores": _masked_scores,
    "weights": _weights,
    "context": _context,
    "concatenated": _concatenated,
    "result": _result,
    "inner": _inner,
    "activated": _activated,
    "sum": _sum,
    "normed": _normed,
    "mean": _mean,
    "deviation": _deviation,
    "memory": _memory,
    "logits": _logits,
    "log_probabilities": _probabilities,
    "probabilities": _probabilities,
}


def _given(o: Operands, law: str, source: str) -> Derivation:
    """An input of the model has no operands: it is itself."""
    return Derivation(law, source, Number(o.number(o.place.name).value, o.tap))


def _width(x: Vector) -> Number:
    return Number(len(x), "d_model")


def _normalised(model: nn.Module, norm: str) -> str:
    """What the LayerNorm at ``norm`` is given."""
    path = norm.rpartition(".")[0]
    if norm.endswith("final_norm"):
        return residual_stream(model, path)[-1]
    sublayer = path.removesuffix("_norm")
    return residual(model, sublayer) if model.get_submodule(path).pre else f"{path}.sum"
