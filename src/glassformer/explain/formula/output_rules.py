"""Rules of what comes out: the memory, logits and probabilities, pooled texts, forecasts."""

from glassformer.explain.formula.dataflow import output_of
from glassformer.explain.formula.expression import Number, dot, log_softmax, op, softmax, total
from glassformer.explain.formula.operands import Derivation, Operands


def memory(o: Operands) -> Derivation:
    return Derivation(r"\text{Encoder}(x)", "section 3.1", o.number(output_of(o.model, "encoder")))


def recurrent_memory(o: Operands) -> Derivation:
    equation, reference = r"[\overrightarrow{h}_p; \overleftarrow{h}_p]", "Bahdanau et al. 2015, section 3.2"
    return Derivation(equation, reference, o.number(f"encoder.{_last_states(o, 'encoder.rightward')}"))


def decoder_logits(o: Operands) -> Derivation:
    return _logits(o, output_of(o.model, "decoder"))


def memory_logits(o: Operands) -> Derivation:
    return _logits(o, "memory")


def masked_token_logits(o: Operands) -> Derivation:
    return _logits(o, "transform.normed")


def class_logits(o: Operands) -> Derivation:
    return _logits(o, f"{o.path.removesuffix('projection')}pooler.pooled")


def recurrent_logits(o: Operands) -> Derivation:
    return _logits(o, "decoder.combined")


def probabilities(o: Operands) -> Derivation:
    row, log = o.vector(f"{o.path}.logits"), o.tap == "log_probabilities"
    equation = r"z_w - \ln \sum_v e^{z_v}" if log else r"\frac{e^{z_w}}{\sum_v e^{z_v}}"
    return Derivation(equation, "section 3.4", (log_softmax if log else softmax)(row, o.last))


def pooled(o: Operands) -> Derivation:
    dense = o.linear(o.vector("memory", position=0), f"{o.path}.dense", o.last)
    return Derivation(r"\tanh(x_{[CLS]} W + b)", "Devlin et al. 2019, section 3", op("tanh", dense))


def embedded(o: Operands) -> Derivation:
    """What a token may see is what is no padding."""
    equation, reference = r"\frac{1}{n} \sum_p x_{p,d}", "Reimers & Gurevych 2019, section 3"
    seen, x = "encoder.layers.0.self_attention.mask", o.numbers("memory", "position")
    if seen not in o.trace:
        return Derivation(equation, reference, op("quotient", total(x), Number(len(x), "n")))
    mask = o.numbers(seen, "key")
    return Derivation(equation, reference, op("quotient", dot(mask, x), total(mask)))


def combined(o: Operands) -> Derivation:
    context = o.vector("decoder.cross_attention.result")
    states = o.vector(f"decoder.{_last_states(o, 'decoder.layers')}")
    weight, half = "decoder.combine.weight", len(context)
    for_context, own = o.row(weight, o.last, 0, half), o.row(weight, o.last, half)
    inside = op("sum", dot(context, for_context), dot(states, own), *o.parameter("decoder.combine.bias", o.last))
    return Derivation(r"\tanh(W [c; h] + b)", "Luong et al. 2015, equation 5", op("tanh", inside))


def forecast(o: Operands) -> Derivation:
    """A row of the batch is one variable of one series."""
    row = o.index["batch"] * o.trace[o.place.name].size(-1) + o.index["variable"]
    standard = o.linear(o.flat("memory", batch=row), "forecast", o.index["step"])
    equation, reference = r"\text{flatten}(x) W + b", "Nie et al. 2023, section 3.1"
    if "mean" not in o.trace:
        return Derivation(equation, reference, standard)
    size, center = o.number("deviation", batch=row), o.number("mean", batch=row)
    equation = rf"({equation}) \sigma + \mu"
    return Derivation(equation, f"{reference}; Kim et al. 2022", op("sum", op("product", standard, size), center))


def _last_states(o: Operands, layers: str) -> str:
    return f"states_{len(list(o.model.get_submodule(layers).children())) - 1}"


def _logits(o: Operands, name: str) -> Derivation:
    """The output projection of the vector ``name``."""
    return Derivation(r"x W + b", "section 3.4", o.linear(o.vector(name), o.path, o.last))
