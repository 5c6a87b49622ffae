"""GPT-2, Llama, BERT and the Vision Transformer in NumPy, float64, one text or image, from their papers alone.

Nothing of glassformer is imported here. What is shared are the names of the weights and of the tensors. Formulas are
those of Vaswani et al. 2017 where the descendants keep them, and else of the papers named at each function.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import pi, sqrt

import numpy as np

from reference.transformer import ACTIVATIONS, Array, Tensors, Weights, softmax


def gelu_tanh(x: Array) -> Array:
    """Hendrycks & Gimpel 2016, section 2."""
    return 0.5 * x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))


@dataclass(frozen=True)
class Sizes:
    """What the weights alone do not tell."""

    n_layers: int
    n_heads: int
    n_kv_heads: int
    epsilon: float
    activation: str
    pre_norm: bool
    causal: bool
    rotary_theta: float = 0.0


class Descendant:
    """One forward pass; ``tensors`` fills with everything that is computed."""

    def __init__(self, weights: Weights, sizes: Sizes):
        self.weights, self.sizes = weights, sizes
        self.activation = {**ACTIVATIONS, "gelu_tanh": gelu_tanh}[sizes.activation]
        self.tensors: Tensors = {}

    def gpt(self, ids: list[int]) -> Tensors:
        """Radford et al. 2018, equation 2; Touvron et al. 2023 leave the positions to the rotation."""
        x = self.tokens(ids)
        if "embedding.position.weight" in self.weights:
            x = self.positioned(x)
        self.project(self.stack(x, "decoder"), "output_projection", tied="embedding.weight")
        return self.tensors

    def bert(self, ids: list[int], segments: list[int]) -> Tensors:
        """Devlin et al. 2019: three embeddings summed and normalized; heads on the encoder's output."""
        x = self.positioned(self.tokens(ids))
        segment = self.note("embedding.segment", self.weights["embedding.segment.weight"][segments])
        x = self.note("embedding.segmented", x + segment)
        x = self.note("embedding.normed", self.normalize(x, "embedding.norm"))
        memory = self.note("memory", self.stack(x, "encoder"))
        activated = self.note("transform.activated", self.activation(self.linear(memory, "transform.dense")))
        hidden = self.note("transform.normed", self.normalize(activated, "transform.norm"))
        self.project(hidden, "output_projection", tied="embedding.weight")
        pooled = np.tanh(self.linear(memory[0], "classes.pooler.dense"))
        self.project(self.note("classes.pooler.pooled", pooled), "classes.projection")
        self.project(memory, "tags.projection")
        return self.tensors

    def vit(self, image: Array, patch: int) -> Tensors:
        """Dosovitskiy et al. 2021, equations 1 to 4; ``image`` is [channel, row, column]."""
        _, height, width = image.shape
        squares = [
            image[:, top : top + patch, left : left + patch].reshape(-1)
            for top in range(0, height, patch)
            for left in range(0, width, patch)
        ]
        patches = self.note("embedding.patches", np.stack(squares))
        projected = self.note("embedding.projected", self.linear(patches, "embedding.projection"))
        x = self.positioned(np.vstack([self.weights["embedding.class_token"], projected]))
        memory = self.note("memory", self.stack(x, "encoder"))
        self.project(memory[0], "output_projection")
        return self.tensors

    def note(self, name: str, value: Array) -> Array:
        self.tensors[name] = value
        return value

    def linear(self, x: Array, name: str) -> Array:
        return x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", 0.0)

    def tokens(self, ids: list[int]) -> Array:
        """A row of the matrix for each token, without a factor."""
        matrix = self.weights["embedding.weight"]
        one_hot = self.note("embedding.one_hot", np.eye(len(matrix))[ids])
        return self.note("embedding.scaled", self.note("embedding.tokens", one_hot @ matrix))

    def positioned(self, x: Array) -> Array:
        encoding = self.note("embedding.encoding", self.weights["embedding.position.weight"][: len(x)])
        return self.note("embedding.positioned", x + encoding)

    def normalize(self, x: Array, name: str) -> Array:
        """LayerNorm (Ba et al. 2016), or without a bias RMSNorm (Zhang & Sennrich 2019, equation 4)."""
        if f"{name}.bias" not in self.weights:
            size = self.note(f"{name}.root_mean_square", np.sqrt((x * x).mean(-1) + self.sizes.epsilon))
            return x / size[..., None] * self.weights[f"{name}.weight"]
        mean = self.note(f"{name}.mean", x.mean(-1))
        centered = x - mean[..., None]
        deviation = self.note(f"{name}.deviation", np.sqrt((centered**2).mean(-1) + self.sizes.epsilon))
        return centered / deviation[..., None] * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def stack(self, x: Array, side: str) -> Array:
        for number in range(self.sizes.n_layers):
            for part, compute in (("self_attention", self.attention), ("feed_forward", self.feed_forward)):
                x = self.add_norm(x, f"{side}.layers.{number}.{part}", compute)
        return self.note(f"{side}.normed", self.normalize(x, f"{side}.final_norm")) if self.final_norm(side) else x

    def final_norm(self, side: str) -> bool:
        return f"{side}.final_norm.weight" in self.weights

    def add_norm(self, x: Array, name: str, compute: Callable[[Array, str], Array]) -> Array:
        if self.sizes.pre_norm:
            normed = self.note(f"{name}_norm.normed", self.normalize(x, f"{name}_norm.norm"))
            return self.note(f"{name}_norm.sum", x + compute(normed, name))
        total = self.note(f"{name}_norm.sum", x + compute(x, name))
        return self.note(f"{name}_norm.normed", self.normalize(total, f"{name}_norm.norm"))

    def attention(self, x: Array, name: str) -> Array:
        """Equation 1 in every head; heads in groups share keys and values (Ainslie et al. 2023, section 2.2)."""
        q = self.heads(x, f"{name}.query", "q", self.sizes.n_heads)
        k = self.heads(x, f"{name}.key", "k", self.sizes.n_kv_heads)
        v = self.heads(x, f"{name}.value", "v", self.sizes.n_kv_heads)
        if self.sizes.rotary_theta:
            q = self.note(f"{name}.rotated_q", self.rotate(q))
            k = self.note(f"{name}.rotated_k", self.rotate(k))
        shared = [head * self.sizes.n_kv_heads // self.sizes.n_heads for head in range(self.sizes.n_heads)]
        scores = self.note(f"{name}.scores", np.stack([q[head] @ k[of].T for head, of in enumerate(shared)]))
        scaled = self.note(f"{name}.scaled_scores", scores / sqrt(q.shape[-1]))
        if self.sizes.causal:
            mask = self.note(f"{name}.mask", np.tril(np.ones_like(scaled)))
            scaled = self.note(f"{name}.masked_scores", np.where(mask == 1, scaled, -np.inf))
        weights = self.note(f"{name}.weights", softmax(scaled))
        context = self.note(f"{name}.context", np.stack([weights[h] @ v[of] for h, of in enumerate(shared)]))
        concatenated = self.note(f"{name}.concatenated", np.concatenate(list(context), axis=-1))
        return self.note(f"{name}.result", self.linear(concatenated, f"{name}.output"))

    def heads(self, x: Array, projection: str, tap: str, count: int) -> Array:
        """Head h has the h-th of ``count`` equal stretches of the columns."""
        split = np.split(self.linear(x, projection), count, axis=-1)
        return self.note(f"{projection.rpartition('.')[0]}.{tap}", np.stack(split))

    def rotate(self, x: Array) -> Array:
        """Su et al. 2021, equation 15: each pair of dimensions is a complex number, turned by an angle m θ_i."""
        rates = self.sizes.rotary_theta ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
        turn = np.exp(1j * np.arange(x.shape[1])[:, None] * rates)
        turned = (x[..., 0::2] + 1j * x[..., 1::2]) * turn
        return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)

    def feed_forward(self, x: Array, name: str) -> Array:
        """Equation 2; with a gate Shazeer 2020, equation 6."""
        if f"{name}.gate.weight" not in self.weights:
            inner = self.note(f"{name}.inner", self.linear(x, f"{name}.inner"))
            return self.outer(self.note(f"{name}.activated", self.activation(inner)), name)
        gate = self.note(f"{name}.gate", self.linear(x, f"{name}.gate"))
        activated = self.note(f"{name}.activated", self.activation(gate))
        inner = self.note(f"{name}.inner", self.linear(x, f"{name}.inner"))
        return self.outer(self.note(f"{name}.product", activated * inner), name)

    def outer(self, x: Array, name: str) -> Array:
        return self.note(f"{name}.result", self.linear(x, f"{name}.outer"))

    def project(self, x: Array, name: str, tied: str = "") -> None:
        matrix = self.weights.get(f"{name}.weight", self.weights.get(tied))
        assert matrix is not None
        logits = self.note(f"{name}.logits", x @ matrix.T + self.weights.get(f"{name}.bias", 0.0))
        probabilities = self.note(f"{name}.probabilities", softmax(logits))
        self.note(f"{name}.log_probabilities", np.log(probabilities))
