"""Views of a whole model: positions, causal mask, norms, logit lens; and where the class token of an image looks."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.errors import ConfigError
from glassformer.explain.analysis.lens import logit_lens
from glassformer.explain.example import Example
from glassformer.explain.figures.view import View
from glassformer.explain.formula.dataflow import embeddings, positions_of, residual_stream, stacks
from glassformer.explain.matrix import Axis, Matrix, Scale
from glassformer.layers.position import Sinusoidal

DIMENSIONS = 64
CLASS = "class_attention"


def positions(example: Example) -> View:
    """Positional encodings; where source and target share them, those of the longer side."""
    model = example.model
    longest: dict[object, tuple[str, int]] = {}
    for stack, side in embeddings(model).items():
        position, length = model.get_submodule(side).position, len(example.tokens(stack))
        if position is None and positions_of(model, stack) == "rotary":
            raise ConfigError(
                "positions=rotary adds nothing to the embedding: q and k are turned; look at rotated_q, _k"
            )
        if position is None:
            raise ConfigError(f"the {stack} has no positional encoding; choose another view")
        values = type(position) if isinstance(position, Sinusoidal) else position
        if values not in longest or longest[values][1] < length:
            longest[values] = side, length
    encodings = {side: _numbers(example.trace[f"{side}.encoding"]) for side, _ in longest.values()}
    width = next(iter(encodings.values())).shape[1]
    chosen = _dimensions(width)
    parts = {side: encoding[:, chosen] for side, encoding in encodings.items()}
    high = 1.0 if isinstance(position, Sinusoidal) else max(float(np.abs(values).max()) for values in parts.values())
    dimensions, scale = Axis.of("dimension", map(str, chosen)), Scale("encoding", -high, high)
    matrices = []
    for side, length in longest.values():
        title = side.removesuffix("_embedding") if len(longest) > 1 else ""
        matrices.append(Matrix(parts[side], _numbered("position", length), dimensions, title, scale))
    title = f"positional encoding, {positions_of(model, stack)}"
    if width > DIMENSIONS:
        title += f" · {DIMENSIONS} of {width} dimensions, in pairs"
    return View("positions", title, matrices)


def mask(example: Example) -> View:
    values = _numbers(example.trace["decoder.layers.0.self_attention.mask"][0, 0])
    read = example.attention_sides("decoder", "self_attention")[0]
    title = "causal mask of the decoder: no token sees a later one"
    queries, keys = (Axis(f"{read.name} ({kind})", read.labels) for kind in ("query", "key"))
    return View("mask", title, [Matrix(values, queries, keys, scale=Scale("1 = may be seen"))])


def norms(example: Example) -> View:
    lengths = {}
    for stack in stacks(example.model):
        names = residual_stream(example.model, stack)
        lengths[stack] = _numbers(torch.stack([example.trace[name][0].double().norm(dim=-1) for name in names]))
    low = min(float(values.min()) for values in lengths.values())
    high = max(float(values.max()) for values in lengths.values())
    matrices = [
        Matrix(
            values,
            _places(len(values)),
            Axis("token", example.side(stack).labels),
            stack,
            Scale("Euclidean norm", low, high),
        )
        for stack, values in lengths.items()
    ]
    return View("norms", "length of the residual stream, after the embedding and after each layer", matrices)


def lens_of(example: Example) -> View:
    """Logit lens of a text: of the next token at each position, or of the hidden token at each mask."""
    ids = example.predicted_ids
    lens = logit_lens(example.trace, torch.tensor([ids]))
    asking = example.attention_sides("decoder", "cross_attention")[0]
    assert asking.tokenizer is not None
    probability = _numbers(lens.probability[:, 0])
    what, axis = "target token, had the decoder", "target: the predicted token"
    if asking.name == "text":
        what, axis = f"token, had the {stacks(example.model)[0]}", "text: the predicted token"
    title = f"logit lens: the probability of each {what} ended there"
    columns = Axis.of(axis, asking.tokenizer.tokens(ids))
    return View(
        "logit_lens", title, [Matrix(probability, _places(len(probability)), columns, "", Scale("probability"))]
    )


def class_attention(example: Any, name: str, title: str, heads: Mapping[str, Tensor]) -> View:
    """Attention of a Vision Transformer's class token to each patch, laid over the image."""
    down, across = (side // example.model.config.patch_size for side in example.model.config.image_size)
    rows, columns = _numbered("row of patches", down), _numbered("column of patches", across)
    patches = {head: weights[0, 1:].reshape(down, across).numpy() for head, weights in heads.items()}  # not itself
    scale = Scale("attention", 0.0, max(float(values.max()) for values in patches.values()))
    matrices = [
        Matrix(values, rows, columns, head if len(heads) > 1 else "", scale, example.values)
        for head, values in patches.items()
    ]
    return View(name, f"{title} of {example.input}", matrices)


def _dimensions(d_model: int) -> list[int]:
    """At most 64, evenly spread, each sine with its cosine."""
    pairs = np.unique(np.linspace(0, (d_model - 1) // 2, min(DIMENSIONS, d_model + 1) // 2).round().astype(int))
    return [dimension for pair in pairs for dimension in (2 * int(pair), 2 * int(pair) + 1) if dimension < d_model]


def _numbered(title: str, count: int) -> Axis:
    return Axis.of(title, map(str, range(count)))


def _places(count: int) -> Axis:
    return Axis.of("place", ["embedding", *(f"layer {layer}" for layer in range(count - 1))])


def _numbers(tensor: Tensor) -> np.ndarray:
    return np.asarray(tensor.double().cpu().numpy())
