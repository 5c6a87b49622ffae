"""An image with its patches, and the attention of one of them laid over it; a series has its own panel."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from glassformer.explain.example import Example
from glassformer.text.decimals import weight as weight_text
from glassformer.web.explorer.panels.sentence import attention_title, main_attention
from glassformer.web.explorer.picture import photo
from glassformer.web.explorer.selection import Selection

STRONGEST = 0.8
"""Opacity of the patch with the largest weight."""


@dataclass(frozen=True)
class PatchBox:
    """A patch in pixels of the image; ``opacity`` is its weight as a part of the largest one."""

    x: int
    y: int
    row: int
    column: int
    weight: str
    opacity: str
    address: str
    current: bool


@dataclass(frozen=True)
class PatchView:
    """``class_weight`` is the weight of the class token, which is no part of the image."""

    title: str
    address: str
    summary: str
    picture: str
    width: int
    height: int
    size: int
    across: int
    boxes: tuple[PatchBox, ...]
    class_weight: str
    class_address: str
    class_is_query: bool
    query: str
    scale: str
    truth: str


def patches_of(
    example: Example, selection: Selection, truth: str = "", path: str = "", head: int | None = None
) -> PatchView:
    """The attention at ``path``, one head or the mean of all, of the patch at the selected step."""
    assert example.values is not None
    path = path or main_attention(example)
    every = example.trace[f"{path}.weights"][0].double().cpu().numpy()
    weights: NDArray[np.float64] = every.mean(0) if head is None else every[head]
    config, query = example.model.config, min(selection.step or 0, len(weights) - 1)
    height, width = config.image_size
    across, row = width // config.patch_size, weights[query]
    largest = float(row[1:].max()) or 1.0
    boxes = tuple(
        PatchBox(
            number % across * config.patch_size,
            number // across * config.patch_size,
            number // across,
            number % across,
            weight_text(float(value)),
            f"{STRONGEST * float(value) / largest:.3f}",
            replace(selection, step=number + 1).address,
            number + 1 == query,
        )
        for number, value in enumerate(row[1:])
    )
    title, address = attention_title(example, selection, path, head)
    name = "The class token" if query == 0 else _patch(query - 1, across)
    best = int(row[1:].argmax())
    summary = f"{name} attends most to {_patch(best, across).lower()}: {weight_text(float(row[best + 1]))}."
    return PatchView(
        title,
        address,
        summary,
        photo(example.values),
        width,
        height,
        config.patch_size,
        across,
        boxes,
        weight_text(float(row[0])),
        replace(selection, step=0).address,
        query == 0,
        name,
        f"from 0 to {weight_text(largest)}",
        truth,
    )


def _patch(number: int, across: int) -> str:
    return f"Patch {number // across},{number % across}"
