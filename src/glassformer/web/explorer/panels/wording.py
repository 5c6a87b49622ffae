"""Titles and formulas of tensors and modules, in the paper's symbols."""

from dataclasses import replace
from typing import Any, NamedTuple

from glassformer.explain.matrix import Label
from glassformer.layers.norm import RMSNorm


class TensorText(NamedTuple):
    """``symbol`` is what a card shows in large type; ``meaning`` a line below it."""

    symbol: str
    meaning: str


TENSORS: dict[str, TensorText] = {
    "one_hot": TensorText("one-hot", "a 1 at the number of the token"),
    "tokens": TensorText("onehot · E", "the row of the embedding matrix"),
    "scaled": TensorText("× √d_model", "scaled embedding"),
    "encoding": TensorText("PE", "positional encoding"),
    "positioned": TensorText("E √d_model + PE", "token and position"),
    "segment": TensorText("S", "vector of the text"),
    "segmented": TensorText("E + P + S", "token, position and segment"),
    "q": TensorText("Q = x W^Q", "queries"),
    "k": TensorText("K = x W^K", "keys"),
    "v": TensorText("V = x W^V", "values"),
    "rotated_q": TensorText("R Q", "queries, rotated by position"),
    "rotated_k": TensorText("R K", "keys, rotated by position"),
    "scores": TensorText("Q Kᵀ", "scores"),
    "scaled_scores": TensorText("÷ √d_k", "scaled scores"),
    "mask": TensorText("mask", "1 where attention is allowed"),
    "masked_scores": TensorText("−∞ where hidden", "masked scores"),
    "weights": TensorText("softmax", "attention weights A"),
    "context": TensorText("A V", "weighted sum of the values"),
    "concatenated": TensorText("Concat", "all heads side by side"),
    "result": TensorText("· W^O", "output of the sub-layer"),
    "inner": TensorText("x W_1", "inner layer"),
    "gate": TensorText("x W_gate", "gate"),
    "activated": TensorText("activation", "activated neurons"),
    "product": TensorText("gate ⊙ inner", "gated neurons"),
    "sum": TensorText("x + Sublayer(x)", "residual sum"),
    "normed": TensorText("LayerNorm", "normalized"),
    "norm.mean": TensorText("μ", "mean of each position"),
    "norm.deviation": TensorText("σ", "standard deviation of each position"),
    "norm.root_mean_square": TensorText("RMS", "root mean square of each position"),
    "memory": TensorText("m", "output of the encoder"),
    "logits": TensorText("x Eᵀ", "logits z"),
    "log_probabilities": TensorText("log softmax", "log-probabilities"),
    "probabilities": TensorText("softmax", "probabilities"),
    "pooled": TensorText("tanh", "the vector of the text"),
    "combined": TensorText("tanh W [c; h]", "context and state"),
}
"""Tensors by the name of their tap."""

OF_SUBLAYERS = {
    ("cross_attention", "k"): TensorText("K = m W^K", "keys of the memory"),
    ("cross_attention", "v"): TensorText("V = m W^V", "values of the memory"),
    ("feed_forward", "result"): TensorText("· W_2", "output of the sub-layer"),
}
"""Tensors by sub-layer and tap, where they differ from those of self-attention."""

BIASES = {
    "q": (("query", "b^Q"),),
    "k": (("key", "b^K"),),
    "v": (("value", "b^V"),),
    "inner": (("inner", "b_1"),),
    "gate": (("gate", "b_gate"),),
    "result": (("output", "b^O"), ("outer", "b_2")),
}
"""Tensors by tap → the linear layer that computes each, by its name in the sub-layer, and the symbol of its bias."""

MODULES = {
    "self_attention": "Self-attention",
    "cross_attention": "Cross-attention",
    "feed_forward": "Feed-forward",
    "final_norm": "Final normalization",
    "output_projection": "Linear and softmax",
    "source_embedding": "Source embedding",
    "target_embedding": "Target embedding",
}

SUMMARIES = {
    "self_attention": "Each query attends to all keys; the output is a weighted sum of the values.",
    "cross_attention": "Target queries attend to the encoder output.",
    "feed_forward": "Each position is transformed by itself: widened, activated, and narrowed again.",
    "norm": "The output of the sub-layer is added to its input, and each position is normalized.",
    "pre_norm": "Each position is normalized before the sub-layer, whose output is added to the residual stream.",
    "final_norm": "Each position is normalized.",
    "embedding": "Each token becomes a vector, and its position is added to it.",
    "output_projection": "The last vector is compared with every word; the softmax makes probabilities of it.",
}


def tensor_text(stage: str, path: str = "", module: Any = None) -> TensorText:
    """Text of a tensor by its name in the module at ``path``."""
    tap = stage.rpartition(".")[2]
    if stage == "sum" and getattr(module, "pre", False):
        return TensorText("x + Sublayer(Norm(x))", "residual sum")
    if stage == "normed" and isinstance(_norm_of(module), RMSNorm):
        return TensorText("RMSNorm", "normalized")
    known = OF_SUBLAYERS.get((path.rpartition(".")[2], stage)) or TENSORS.get(stage) or TENSORS.get(tap)
    if known is None:
        return TensorText(tap.replace("_", " "), stage.replace("_", " "))
    return known._replace(symbol=known.symbol + _bias(stage, module))


def _bias(stage: str, module: Any) -> str:
    """``+ b`` of a tensor that a linear layer computes, if this layer has a bias."""
    layers = ((getattr(module, name, None), symbol) for name, symbol in BIASES.get(stage, ()))
    return next((f" + {symbol}" for layer, symbol in layers if getattr(layer, "bias", None) is not None), "")


def _norm_of(module: Any) -> Any:
    """Normalization of a stack, an embedding or an ``AddNorm``; None of another module."""
    return getattr(module, "final_norm", None) or getattr(module, "norm", None)


def in_quotes(word: Label) -> str:
    """A word of a vocabulary in a sentence, without the marks of word boundaries."""
    return replace(word, side="vocabulary").plain


def module_title(part: str, layer: int | None, sublayer: str, pre: bool = False) -> str:
    """``Cross-attention · decoder, layer 1``; ``pre`` is the order of a normalization."""
    place = part.replace("_", " ") + ("" if layer is None else f", layer {layer}")
    if sublayer.endswith("_norm"):
        inner = MODULES.get(sublayer.removesuffix("_norm"), sublayer.removesuffix("_norm").replace("_", " ")).lower()
        title = f"Norm before {inner}, then add" if pre else f"Add & Norm after {inner}"
        return f"{title} · {place}"
    if sublayer:
        return f"{MODULES.get(sublayer, sublayer.replace('_', ' ').capitalize())} · {place}"
    return MODULES.get(part, place[:1].upper() + place[1:])


def module_summary(part: str, sublayer: str, pre: bool = False) -> str:
    """One sentence on what a module does; empty if it is not known."""
    name = sublayer or part
    if name.endswith("_norm") and name not in SUMMARIES:
        return SUMMARIES["pre_norm" if pre else "norm"]
    return SUMMARIES.get(name) or (SUMMARIES["embedding"] if name.endswith("embedding") else "")
