"""One rule for each operation: from a recorded number to the expression that gives it, with its operands.

A rule's equation is in LaTeX; with it goes the section or equation of the paper that states it.
"""

from collections.abc import Callable

from glassformer.explain.formula import embedding_rules as read
from glassformer.explain.formula import layer_rules as layer
from glassformer.explain.formula import output_rules as out
from glassformer.explain.formula.operands import Derivation, Operands

Rule = Callable[[Operands], Derivation]

RULES: dict[str, Rule] = {
    "one_hot": read.one_hot,
    "tokens": read.tokens,
    "scaled": read.scaled,
    "encoding": read.encoding,
    "positioned": read.positioned,
    "segment": read.segment,
    "segmented": read.segmented,
    "patches": read.patches,
    "projected": read.projected,
    "q": layer.projection,
    "k": layer.projection,
    "v": layer.projection,
    "rotated_q": layer.rotated,
    "rotated_k": layer.rotated,
    "scores": layer.scores,
    "scaled_scores": layer.scaled_scores,
    "mask": layer.mask,
    "masked_scores": layer.masked_scores,
    "weights": layer.weights,
    "context": layer.context,
    "concatenated": layer.concatenated,
    "result": layer.result,
    "gate": layer.inner,
    "inner": layer.inner,
    "activated": layer.activated,
    "product": layer.product,
    "sum": layer.residual_sum,
    "normed": layer.normed,
    "mean": layer.mean,
    "deviation": layer.deviation,
    "root_mean_square": layer.root_mean_square,
    "memory": out.memory,
    "logits": out.logits,
    "log_probabilities": out.probabilities,
    "probabilities": out.probabilities,
    "pooled": out.pooled,
    "embedded": out.embedded,
    "combined": out.combined,
    "forecast": out.forecast,
}
