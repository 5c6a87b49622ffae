"""The encoder–decoder Transformer in NumPy, float64, one sentence pair, written from the paper's formulas alone.

Nothing of glassformer is imported here. ``encoder_decoder`` returns every tensor it computes under a name; what it
shares with the package are the names of the weights and of the tensors, and the meaning that the paper gives them.
Equations and sections are those of Vaswani et al. 2017.
"""

from collections.abc import Callable
from math import erf, sqrt

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Weights = dict[str, Array]
Tensors = dict[str, Array]

LAYER_NORM_EPSILON = 1e-5
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * 0.5 * (1 + np.vectorize(erf)(x / sqrt(2))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def softmax(scores: Array) -> Array:
    """Along the last axis; −∞ becomes 0."""
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def sinusoidal_encoding(length: int, d_model: int) -> Array:
    """Section 3.5: sin at the even, cos at the odd dimensions of pos / 10000^(2i/d_model)."""
    encoding = np.zeros((length, d_model))
    for position in range(length):
        for dimension in range(d_model):
            angle = position / 10000 ** (2 * (dimension // 2) / d_model)
            encoding[position, dimension] = np.sin(angle) if dimension % 2 == 0 else np.cos(angle)
    return encoding


class Reference:
    """One forward pass; ``tensors`` fills with everything that is computed."""

    scale_embeddings = True
    norm_embeddings = False

    def __init__(self, weights: Weights, n_heads: int, norm_order: str, activation: str = "relu"):
        self.weights = weights
        self.n_heads = n_heads
        self.pre_norm = norm_order == "pre"
        self.activation = ACTIVATIONS[activation]
        self.tensors: Tensors = {}

    def note(self, name: str, value: Array) -> Array:
        self.tensors[name] = value
        return value

    def linear(self, x: Array, name: str) -> Array:
        product = x @ self.weights[f"{name}.weight"].T
        bias = self.weights.get(f"{name}.bias")
        return product if bias is None else product + bias

    def embed(self, ids: list[int], side: str) -> Array:
        """Section 3.4: a row of the matrix is the one-hot vector times the matrix, × √d_model; then the position.

        Lewis et al. 2020 leave out the factor and normalize the sum; Liu et al. 2020 normalize it with the factor.
        """
        name = f"{side}_embedding"
        stored = name if f"{name}.weight" in self.weights else "source_embedding"  # the two may be shared
        matrix = self.weights[f"{stored}.weight"]
        one_hot = np.zeros((len(ids), len(matrix)))
        one_hot[np.arange(len(ids)), ids] = 1
        tokens = self.note(f"{name}.tokens", self.note(f"{name}.one_hot", one_hot) @ matrix)
        factor = sqrt(matrix.shape[1]) if self.scale_embeddings else 1.0
        scaled = self.note(f"{name}.scaled", tokens * factor)
        learned = self.weights.get(f"{stored}.position.weight")
        encoding = sinusoidal_encoding(len(ids), matrix.shape[1]) if learned is None else learned[: len(ids)]
        self.note(f"{name}.encoding", encoding)
        total = self.note(f"{name}.positioned", scaled + encoding)
        if not self.norm_embeddings:
            return total
        return self.note(f"{name}.normed", self.layer_norm(total, f"{name}.norm", f"{stored}.norm"))

    def layer_norm(self, x: Array, name: str, stored: str = "") -> Array:
        """Ba et al. 2016: each position to mean 0 and variance 1 over d_model, then gain and bias."""
        stored = stored or name
        mean = self.note(f"{name}.mean", x.mean(-1))[:, None]
        variance = ((x - mean) ** 2).mean(-1)
        deviation = self.note(f"{name}.deviation", np.sqrt(variance + LAYER_NORM_EPSILON))[:, None]
        normalized = (x - mean) / deviation
        return normalized * self.weights[f"{stored}.weight"] + self.weights[f"{stored}.bias"]

    def attention(self, x: Array, memory: Array, name: str, causal: bool) -> Array:
        """Section 3.2: softmax(Q Kᵀ / √d_k) V for each head on its own projections, side by side, times W_O."""

        def heads(projected: Array) -> Array:
            return projected.reshape(len(projected), self.n_heads, -1).swapaxes(0, 1)

        q = self.note(f"{name}.q", heads(self.linear(x, f"{name}.query")))
        k = self.note(f"{name}.k", heads(self.linear(memory, f"{name}.key")))
        v = self.note(f"{name}.v", heads(self.linear(memory, f"{name}.value")))
        scores = self.note(f"{name}.scores", np.einsum("hqd,hkd->hqk", q, k))
        scaled = self.note(f"{name}.scaled_scores", scores / sqrt(q.shape[-1]))
        if causal:
            mask = self.note(f"{name}.mask", np.tril(np.ones_like(scaled)))
            scaled = self.note(f"{name}.masked_scores", np.where(mask == 1, scaled, -np.inf))
        weights = self.note(f"{name}.weights", softmax(scaled))
        context = self.note(f"{name}.context", np.einsum("hqk,hkd->hqd", weights, v))
        concatenated = self.note(f"{name}.concatenated", context.swapaxes(0, 1).reshape(len(x), -1))
        return self.note(f"{name}.result", self.linear(concatenated, f"{name}.output"))

    def feed_forward(self, x: Array, name: str) -> Array:
        """Equation 2."""
        inner = self.note(f"{name}.inner", self.linear(x, f"{name}.inner"))
        activated = self.note(f"{name}.activated", self.activation(inner))
        return self.note(f"{name}.result", self.linear(activated, f"{name}.outer"))

    def add_norm(self, x: Array, name: str, sublayer: Callable[[Array], Array]) -> Array:
        """Section 3.1: LayerNorm(x + Sublayer(x)); or x + Sublayer(LayerNorm(x)), as in Xiong et al. 2020."""
        if self.pre_norm:
            normed = self.note(f"{name}.normed", self.layer_norm(x, f"{name}.norm"))
            return self.note(f"{name}.sum", x + sublayer(normed))
        total = self.note(f"{name}.sum", x + sublayer(x))
        return self.note(f"{name}.normed", self.layer_norm(total, f"{name}.norm"))

    def stack(self, x: Array, side: str, n_layers: int, memory: Array | None = None) -> Array:
        for number in range(n_layers):
            layer = f"{side}.layers.{number}"
            own = f"{layer}.self_attention"
            x = self.add_norm(x, f"{own}_norm", lambda x, n=own: self.attention(x, x, n, causal=side == "decoder"))
            if memory is not None:
                cross = f"{layer}.cross_attention"
                x = self.add_norm(x, f"{cross}_norm", lambda x, n=cross: self.attention(x, memory, n, causal=False))
            inner = f"{layer}.feed_forward"
            x = self.add_norm(x, f"{inner}_norm", lambda x, n=inner: self.feed_forward(x, n))
        return self.note(f"{side}.normed", self.layer_norm(x, f"{side}.final_norm")) if self.pre_norm else x

    def run(self, source: list[int], target: list[int], n_encoder_layers: int, n_decoder_layers: int) -> Tensors:
        """``target`` is shifted right: it begins with the start token."""
        memory = self.note("memory", self.stack(self.embed(source, "source"), "encoder", n_encoder_layers))
        x = self.stack(self.embed(target, "target"), "decoder", n_decoder_layers, memory)
        matrix = self.weights.get("output_projection.weight", self.weights["source_embedding.weight"])
        logits = x @ matrix.T + self.weights.get("output_projection.bias", 0)
        self.note("output_projection.logits", logits)
        probabilities = self.note("output_projection.probabilities", softmax(logits))
        self.note("output_projection.log_probabilities", np.log(probabilities))
        return self.tensors
