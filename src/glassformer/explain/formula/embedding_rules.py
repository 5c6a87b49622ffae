"""Rules of what is read: tokens, segments, patches, and their positions (sections 3.4 and 3.5)."""

import torch

from glassformer.errors import ConfigError
from glassformer.explain.formula.expression import Number, op
from glassformer.explain.formula.operands import Derivation, Operands
from glassformer.layers.position import Sinusoidal

UNSCALED = 1.0
LEARNED = r"P_{p,d}", "section 3.5, learned"
"""Formula and reference of a learned positional encoding."""


def tokens(o: Operands) -> Derivation:
    row, dimension = o.numbers(f"{o.path}.one_hot", "vocab"), o.index["d_model"]
    chosen = row.values.nonzero()[0].tolist()  # all others contribute 0
    terms = tuple(op("product", row.number(v), *o.parameter(f"{o.path}.weight", v, dimension)) for v in chosen)
    return Derivation(op("sum", *terms))


def scaled(o: Operands) -> Derivation:
    number, scale = o.number(f"{o.path}.tokens"), o.model.get_submodule(o.path).scale
    if scale == UNSCALED:
        return Derivation(number, r"E_{p,d}", "Radford et al. 2018: without √d_model")
    return Derivation(op("product", number, op("root", Number(o.trace[o.place.name].size(-1), "d_model"))))


def encoding(o: Operands) -> Derivation:
    if "batch" in o.index:
        raise ConfigError(f"{o.place.name} has no formula where rows hold several texts; trace one text a row")
    position, dimension = o.index["position"], o.index["d_model"]
    module = o.model.get_submodule(o.path).position
    if not isinstance(module, Sinusoidal):
        learned = o.parameter(f"{o.path}.position.weight", position, dimension)[0]
        return Derivation(learned, *LEARNED)
    pair = 2 * (dimension // 2)
    wavelength = Number(10000.0 ** (pair / module.d_model), f"10000^({pair}/{module.d_model})")
    angle = op("quotient", Number(position, "position"), wavelength)
    if dimension % 2:
        return Derivation(op("cos", angle), r"\cos\left(\frac{p}{10000^{2i/d_{model}}}\right)")
    return Derivation(op("sin", angle))


def positioned(o: Operands) -> Derivation:
    terms = o.number(f"{o.path}.scaled"), o.number(f"{o.path}.encoding")
    unscaled = o.model.get_submodule(o.path).scale == UNSCALED
    return Derivation(op("sum", *terms), r"x_{p,d} = E_{p,d} + PE_{p,d}" if unscaled else "")


def segment(o: Operands) -> Derivation:
    """The index of the text is not recorded; it is that of the row of the matrix that equals the vector."""
    matrix = o.model.get_parameter(f"{o.path}.segment.weight")
    vector = o.trace[o.place.name][o.index["batch"], o.index["position"]]
    chosen = int(torch.eq(matrix, vector).sum(-1).argmax())
    return Derivation(o.parameter(f"{o.path}.segment.weight", chosen, o.last)[0])


def segmented(o: Operands) -> Derivation:
    before = "scaled" if o.model.get_submodule(o.path).position is None else "positioned"
    return Derivation(op("sum", o.number(f"{o.path}.{before}"), o.number(f"{o.path}.segment")))


def projected(o: Operands) -> Derivation:
    return Derivation(o.linear(o.numbers(f"{o.path}.patches", "number"), f"{o.path}.projection", o.last))


def positioned_patch(o: Operands) -> Derivation:
    """The class token stands before the patches."""
    added = o.number(f"{o.path}.encoding")
    first, place = o.model.get_submodule(o.path).class_token is not None, o.index["position"]
    if first and place == 0:
        term = o.parameter(f"{o.path}.class_token", o.last)[0]
        return Derivation(op("sum", term, added), r"x_{class} + P_{0,d}")
    return Derivation(op("sum", o.number(f"{o.path}.projected", patch=place - first), added))
