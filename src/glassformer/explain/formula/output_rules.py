"""Rules of what comes out: the memory, logits and probabilities, pooled texts, forecasts."""

from glassformer.explain.formula.dataflow import output_of
from glassformer.explain.formula.expression import Number, dot, log_softmax, op, softmax, total
from glassformer.explain.formula.operands import Derivation, Operands


def memory(o: Operands) -> Derivation:
    return Derivation(o.number(output_of(o.model, "encoder")))


def recurrent_memory(o: Operands) -> Derivation:
    return Derivation(o.number(f"encoder.{_last_states(o, 'encoder.rightward')}"))


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
    return Derivation(softmax(o.vector(f"{o.path}.logits"), o.last))


def log_probabilities(o: Operands) -> Derivation:
    return Derivation(log_softmax(o.vector(f"{o.path}.logits"), o.last))


def pooled(o: Operands) -> Derivation:
    return Derivation(op("tanh", o.linear(o.vector("memory", position=0), f"{o.path}.dense", o.last)))


def embedded(o: Operands) -> Derivation:
    """The mean over the keys that the mask shows, which are all but padding."""
    seen, x = "encoder.layers.0.self_attention.mask", o.numbers("memory", "position")
    if seen not in o.trace:
        return Derivation(op("quotient", total(x), Number(len(x), "n")))
    mask = o.numbers(seen, "key")
    return Derivation(op("quotient", dot(mask, x), total(mask)))


def combined(o: Operands) -> Derivation:
    context = o.vector("decoder.cross_attention.result")
    states = o.vector(f"decoder.{_last_states(o, 'decoder.layers')}")
    weight, half = "decoder.combine.weight", len(context)
    for_context, own = o.row(weight, o.last, 0, half), o.row(weight, o.last, half)
    inside = op("sum", dot(context, for_context), dot(states, own), *o.parameter("decoder.combine.bias", o.last))
    return Derivation(op("tanh", inside))


def forecast(o: Operands) -> Derivation:
    """A row of the batch is one variable of one series."""
    row = o.index["batch"] * o.trace[o.place.name].size(-1) + o.index["variable"]
    standard = o.linear(o.flat("memory", batch=row), "forecast", o.index["step"])
    if "mean" not in o.trace:
        return Derivation(standard)
    size, center = o.number("deviation", batch=row), o.number("mean", batch=row)
    scaled = op("sum", op("product", standard, size), center)
    return Derivation(scaled, r"(\text{flatten}(x) W + b) \sigma + \mu", remark="Kim et al. 2022")


def _last_states(o: Operands, layers: str) -> str:
    return f"states_{len(list(o.model.get_submodule(layers).children())) - 1}"


def _logits(o: Operands, name: str) -> Derivation:
    """The output projection of the vector ``name``."""
    return Derivation(o.linear(o.vector(name), o.path, o.last))
