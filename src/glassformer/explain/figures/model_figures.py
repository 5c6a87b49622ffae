"""Views of a whole model: positions, causal mask, norms, logit lens; and where the class token of an image looks."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.errors import ConfigError
from glassformer.explain.analysis.lens import logit_lens
from glassformer.explain.example import Example
from glassformer.explain.figures.panels import Panel
from glassformer.explain.figures.view import View
from glassformer.explain.formula.dataflow import embeddings, residual_stream, stacks
from glassformer.layers.position import Sinusoidal

DIMENSIONS = 64
CLASS = "class_attention"


def positions(example: Example) -> View:
    """Positional encodings; where source and target share them, those of the longer side."""
    model = example.model
    longest: dict[object, tuple[str, int]] = {}
    for stack, side in embeddings(model).items():
        position, length = model.get_submodule(side).position, len(example.tokens(stack))
        if position is None:
            raise ConfigError(
                "positions=rotary adds nothing to the embedding: q and k are turned; look at rotated_q, _k"
            )
        values = type(position) if isinstance(position, Sinusoidal) else position
        if values not in longest or longest[values][1] < length:
            longest[values] = side, length
    panels = []
    for side, length in longest.values():
        encoding = _numbers(example.trace[f"{side}.encoding"])
        dimensions = _dimensions(encoding.shape[1])
        rows = [str(place) for place in range(length)]
        title = side.removesuffix("_embedding") if len(longest) > 1 else ""
        panels.append(Panel(title, rows, [str(dimension) for dimension in dimensions], encoding[:, dimensions]))
    title = f"positional encoding, {type(position).__name__.lower()}"
    if encoding.shape[1] > DIMENSIONS:
        title += f" · {DIMENSIONS} of {encoding.shape[1]} dimensions, in pairs"
    largest = max(float(np.abs(panel.values).max()) for panel in panels)
    high = 1.0 if isinstance(position, Sinusoidal) else largest
    return View("positions", title, "position", "dimension", "encoding", panels, -high, high)


def mask(example: Example) -> View:
    values = _numbers(example.trace["decoder.layers.0.self_attention.mask"][0, 0])
    tokens, read = example.tokens("decoder"), example.attention_sides("decoder", "self_attention")[0].name
    title = "causal mask of the decoder: no token sees a later one"
    axes = f"{read} (query)", f"{read} (key)"
    return View("mask", title, *axes, "1 = may be seen", [Panel("", tokens, tokens, values)])


def norms(example: Example) -> View:
    panels = []
    for stack in stacks(example.model):
        names = residual_stream(example.model, stack)
        lengths = [example.trace[name][0].double().norm(dim=-1) for name in names]
        panels.append(Panel(stack, _places(len(names)), example.tokens(stack), _numbers(torch.stack(lengths))))
    low = min(float(panel.values.min()) for panel in panels)
    high = max(float(panel.values.max()) for panel in panels)
    title = "length of the residual stream, after the embedding and after each layer"
    return View("norms", title, "place", "token", "Euclidean norm", panels, low, high)


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
    panel = Panel("", _places(len(probability)), asking.tokenizer.tokens(ids), probability)
    return View("logit_lens", title, "place", axis, "probability", [panel])


def class_attention(example: Any, name: str, title: str, heads: Mapping[str, Tensor]) -> View:
    """Attention of a Vision Transformer's class token to each patch, laid over the image."""
    down, across = (side // example.model.config.patch_size for side in example.model.config.image_size)
    rows, columns = [str(row) for row in range(down)], [str(column) for column in range(across)]
    panels = []
    for head, weights in heads.items():
        values = weights[0, 1:].reshape(down, across).numpy()  # what it looks at itself is left out
        panels.append(Panel(head if len(heads) > 1 else "", rows, columns, values, example.values))
    title = f"{title} of {example.input}"
    high = max(float(panel.values.max()) for panel in panels)
    return View(name, title, "row of patches", "column of patches", "attention", panels, 0.0, high)


def _dimensions(d_model: int) -> list[int]:
    """At most 64, evenly spread, each sine with its cosine."""
    pairs = np.unique(np.linspace(0, (d_model - 1) // 2, min(DIMENSIONS, d_model + 1) // 2).round().astype(int))
    return [dimension for pair in pairs for dimension in (2 * int(pair), 2 * int(pair) + 1) if dimension < d_model]


def _places(count: int) -> list[str]:
    return ["embedding", *(f"layer {layer}" for layer in range(count - 1))]


def _numbers(tensor: Tensor) -> np.ndarray:
    return np.asarray(tensor.double().cpu().numpy())
