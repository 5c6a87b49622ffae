"""Rules of what is read: tokens, segments, patches, and their positions (sections 3.4 and 3.5)."""

import torch

from glassformer.errors import ConfigError
from glassformer.explain.formula.expression import Number, op
from glassformer.explain.formula.operands import Derivation, Operands, given
from glassformer.layers.position import Sinusoidal

UNSCALED = 1.0


def one_hot(o: Operands) -> Derivation:
    return given(o, r"1 \text{ where } v = \text{id}(\text{token}_p)\text{, else } 0", "3.4; the tokenizer gives ids")


def tokens(o: Operands) -> Derivation:
    row, dimension = o.numbers(f"{o.path}.one_hot", "vocab"), o.index["d_model"]
    chosen = row.values.nonzero()[0].tolist()  # all others contribute 0
    terms = tuple(op("product", row.number(v), *o.parameter(f"{o.path}.weight", v, dimension)) for v in chosen)
    return Derivation(r"\sum_v \text{onehot}_{p,v} E_{v,d}", "section 3.4", op("sum", *terms))


def scaled(o: Operands) -> Derivation:
    number, scale = o.number(f"{o.path}.tokens"), o.model.get_submodule(o.path).scale
    if scale == UNSCALED:
        return Derivation(r"E_{p,d}", "Radford et al. 2018: without √d_model", number)
    root = op("root", Number(o.trace[o.place.name].size(-1), "d_model"))
    return Derivation(r"E_{p,d} \sqrt{d_{model}}", "section 3.4", op("product", number, root))


def encoding(o: Operands) -> Derivation:
    if "batch" in o.index:
        raise ConfigError(f"{o.place.name} has no formula where rows hold several texts; trace one text a row")
    position, dimension = o.index["position"], o.index["d_model"]
    module = o.model.get_submodule(o.path).position
    if not isinstance(module, Sinusoidal):
        return Derivation(
            r"P_{p,d}", "section 3.5, learned", o.parameter(f"{o.path}.position.weight", position, dimension)[0]
        )
    pair = 2 * (dimension // 2)
    wavelength = Number(10000.0 ** (pair / module.d_model), f"10000^({pair}/{module.d_model})")
    angle = op("quotient", Number(position, "position"), wavelength)
    function = "cos" if dimension % 2 else "sin"
    equation = rf"\{function}\left(\frac{{p}}{{10000^{{2i/d_{{model}}}}}}\right)"
    return Derivation(equation, "section 3.5", op(function, angle))


def positioned(o: Operands) -> Derivation:
    added = o.number(f"{o.path}.encoding")
    terms = o.number(f"{o.path}.scaled"), added
    unscaled = o.model.get_submodule(o.path).scale == UNSCALED
    equation = r"x_{p,d} = E_{p,d} + PE_{p,d}" if unscaled else r"x_{p,d} = E_{p,d} \sqrt{d_{model}} + PE_{p,d}"
    return Derivation(equation, "sections 3.4, 3.5", op("sum", *terms))


def segment(o: Operands) -> Derivation:
    """Which of the texts it is, is not recorded; the row of the matrix that the vector is tells it."""
    matrix = o.model.get_parameter(f"{o.path}.segment.weight")
    vector = o.trace[o.place.name][o.index["batch"], o.index["position"]]
    chosen = int(torch.eq(matrix, vector).sum(-1).argmax())
    return Derivation(
        r"S_{s(p),d}", "Devlin et al. 2019, figure 2", o.parameter(f"{o.path}.segment.weight", chosen, o.last)[0]
    )


def segmented(o: Operands) -> Derivation:
    before = "scaled" if o.model.get_submodule(o.path).position is None else "positioned"
    terms = o.number(f"{o.path}.{before}"), o.number(f"{o.path}.segment")
    return Derivation(r"x_{p,d} = E_{p,d} + P_{p,d} + S_{s(p),d}", "Devlin et al. 2019, figure 2", op("sum", *terms))


def image_patches(o: Operands) -> Derivation:
    return given(o, r"\text{a square of the image, by channel, row and column}", "Dosovitskiy et al. 2021, section 3.1")


def series_patches(o: Operands) -> Derivation:
    return given(o, r"\text{a stretch of the series}", "Nie et al. 2023, section 3.1")


def series_mean(o: Operands) -> Derivation:
    return given(o, r"\mu = \frac{1}{T} \sum_t x_t", "Kim et al. 2022; the series itself is not recorded")


def series_deviation(o: Operands) -> Derivation:
    equation = r"\sqrt{\frac{1}{T} \sum_t (x_t - \mu)^2 + \epsilon}"
    return given(o, equation, "Kim et al. 2022; the series itself is not recorded")


def projected(o: Operands) -> Derivation:
    x = o.numbers(f"{o.path}.patches", "number")
    return Derivation(r"x W + b", "Dosovitskiy et al. 2021, equation 1", o.linear(x, f"{o.path}.projection", o.last))


def positioned_patch(o: Operands) -> Derivation:
    """The class token stands before the patches."""
    added = o.number(f"{o.path}.encoding")
    first, place = o.model.get_submodule(o.path).class_token is not None, o.index["position"]
    if first and place == 0:
        term = o.parameter(f"{o.path}.class_token", o.last)[0]
        return Derivation(r"x_{class} + P_{0,d}", "Dosovitskiy et al. 2021, equation 1", op("sum", term, added))
    term = o.number(f"{o.path}.projected", patch=place - first)
    return Derivation(r"x_p W + b + P_{p,d}", "Dosovitskiy et al. 2021, equation 1", op("sum", term, added))
