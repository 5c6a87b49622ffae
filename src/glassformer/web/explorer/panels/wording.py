"""Titles and formulas of tensors and modules, in the paper's symbols."""

from typing import NamedTuple


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
    "mask": TensorText("mask", "1 where the query may see the key"),
    "masked_scores": TensorText("−∞ where hidden", "masked scores"),
    "weights": TensorText("softmax", "attention weights A"),
    "context": TensorText("A V", "weighted sum of the values"),
    "concatenated": TensorText("Concat", "all heads side by side"),
    "result": TensorText("· W^O", "output of the sub-layer"),
    "inner": TensorText("x W_1 + b_1", "inner layer"),
    "gate": TensorText("x W_gate", "gate"),
    "activated": TensorText("activation", "activated neurons"),
    "product": TensorText("gate ⊙ inner", "gated neurons"),
    "sum": TensorText("x + Sublayer(x)", "residual sum"),
    "normed": TensorText("LayerNorm", "normalized"),
    "norm.mean": TensorText("μ", "mean of each position"),
    "norm.deviation": TensorText("σ", "standard deviation of each position"),
    "norm.root_mean_square": TensorText("RMS", "root mean square of each position"),
    "memory": TensorText("memory", "output of the encoder"),
    "logits": TensorText("x Eᵀ", "logits z"),
    "log_probabilities": TensorText("log softmax", "log-probabilities"),
    "probabilities": TensorText("softmax", "probabilities"),
    "pooled": TensorText("tanh", "the vector of the text"),
    "combined": TensorText("tanh W [c; h]", "context and state"),
}
"""Tensors by the name of their tap."""

RESULTS = {"feed_forward": TensorText("· W_2 + b_2", "output of the sub-layer")}
"""Meaning of ``result`` by sub-layer, where it is not the output of an attention."""

MODULES = {
    "self_attention": "Self-attention",
    "cross_attention": "Cross-attention",
    "feed_forward": "Feed-forward",
    "self_attention_norm": "Add & Norm after self-attention",
    "cross_attention_norm": "Add & Norm after cross-attention",
    "feed_forward_norm": "Add & Norm after feed-forward",
    "final_norm": "Final normalization",
    "output_projection": "Linear and softmax",
    "source_embedding": "Source embedding",
    "target_embedding": "Target embedding",
}

SUMMARIES = {
    "self_attention": "Every position asks every other one, and takes what it needs from their values.",
    "cross_attention": "Every position of the target asks the source; this is where the two languages meet.",
    "feed_forward": "Each position is transformed by itself: widened, activated, and narrowed again.",
    "norm": "The sub-layer's output is added to what it read, and each position is normalized.",
    "embedding": "Each token becomes a vector, and its position is added to it.",
    "output_projection": "The last vector is compared with every word; the softmax makes probabilities of it.",
}


def tensor_text(stage: str, path: str = "") -> TensorText:
    """Text of a tensor by its name in its module."""
    tap = stage.rpartition(".")[2]
    if stage == "result" and path.rpartition(".")[2] in RESULTS:
        return RESULTS[path.rpartition(".")[2]]
    known = TENSORS.get(stage) or TENSORS.get(tap)
    return known or TensorText(tap.replace("_", " "), stage.replace("_", " "))


def module_title(part: str, layer: int | None, sublayer: str) -> str:
    """``Cross-attention · decoder, layer 1``."""
    place = part.replace("_", " ") + ("" if layer is None else f", layer {layer}")
    if sublayer:
        return f"{MODULES.get(sublayer, sublayer.replace('_', ' ').capitalize())} · {place}"
    return MODULES.get(part, place[:1].upper() + place[1:])


def module_summary(part: str, sublayer: str) -> str:
    """One sentence on what a module does; empty if it is not known."""
    name = sublayer or part
    if name.endswith("_norm"):
        return SUMMARIES["norm"]
    return SUMMARIES.get(name) or (SUMMARIES["embedding"] if name.endswith("embedding") else "")
