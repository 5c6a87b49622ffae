"""The sentence with its attention: two columns of tokens, and a line for each weight between them."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from glassformer.explain.example import Example
from glassformer.explain.figures.attention import attention_views
from glassformer.explain.matrix import Label
from glassformer.text.decimals import weight as weight_text
from glassformer.web.explorer.selection import Selection

LEAST = 0.04
"""Weights below it have no line."""
PITCH, WIDTH, INSET = 34, 300, 8
"""Height of a token, and width of the space between the columns, in pixels."""
LONGEST = 64
"""Tokens of a column; further ones are left out, with a note."""


@dataclass(frozen=True)
class WeightLine:
    query: int
    key: int
    path: str
    opacity: str
    width: str
    text: str


@dataclass(frozen=True)
class TokenPlace:
    label: Label
    address: str
    current: bool


@dataclass(frozen=True)
class SentenceView:
    """``keys`` at the left, ``queries`` at the right; ``layers`` and ``heads`` choose the attention."""

    title: str
    keys_title: str
    queries_title: str
    keys: tuple[TokenPlace, ...]
    queries: tuple[TokenPlace, ...]
    lines: tuple[WeightLine, ...]
    height: int
    note: str
    address: str
    """Address of the attention itself."""
    summary: str


def main_attention(example: Example) -> str:
    """Path of the attention that a first view shows: cross-attention of the last layer, or the last self-attention."""
    paths = [path for path in attention_views(example).values() if f"{path}.weights" in example.trace]
    crossing = [path for path in paths if path.endswith("cross_attention")]
    return (crossing or paths)[-1]


def sentence_of(example: Example, selection: Selection, path: str = "", head: int | None = None) -> SentenceView:
    """The attention at ``path``: one head, or the mean of all."""
    path = path or main_attention(example)
    every = example.trace[f"{path}.weights"][0].double().cpu().numpy()
    weights: NDArray[np.float64] = every.mean(0) if head is None else every[head]
    queries, keys = example.attention_sides(path.split(".")[0], path.rpartition(".")[2])
    shape = min(len(queries.labels), LONGEST), min(len(keys.labels), LONGEST)
    lines = tuple(_lines(weights[: shape[0], : shape[1]], shape))
    title, address = attention_title(example, selection, path, head)
    longest = max(len(queries.labels), len(keys.labels))
    note = f"The first {LONGEST} of {longest} tokens are shown here; matrices show all." if longest > LONGEST else ""
    key_places = tuple(TokenPlace(label, "", False) for label in keys.labels[:LONGEST])
    query_places = tuple(
        TokenPlace(label, replace(selection, step=place).address, place == selection.step)
        for place, label in enumerate(queries.labels[:LONGEST])
    )
    height = PITCH * max(shape)
    summary = _summary(weights, queries.labels, keys.labels, selection.step or 0)
    return SentenceView(
        title,
        f"{keys.name} (key)",
        f"{queries.name} (query)",
        key_places,
        query_places,
        lines,
        height,
        note,
        address,
        summary,
    )


def attention_title(example: Example, selection: Selection, path: str, head: int | None) -> tuple[str, str]:
    """Title and address of an attention: of one head, or of the mean of all."""
    part, layer, sublayer = _module(path)
    layer_text = "" if layer is None else f", layer {layer}"
    name = f"{part}{layer_text}, {sublayer.replace('_', '-')}"
    count = int(example.trace[f"{path}.weights"].shape[1])
    title = f"{name}, mean of {count} heads" if head is None else f"{name}, head {head}"
    return title, replace(selection.at_module(part, layer, sublayer), head=head).address


def _lines(weights: NDArray[np.float64], shape: tuple[int, int]) -> list[WeightLine]:
    """Strong lines are drawn last, so that they lie above the others."""
    lines = []
    tall = max(shape)
    for flat in np.argsort(weights, axis=None, kind="stable"):
        query, key = divmod(int(flat), weights.shape[1])
        value = float(weights[query, key])
        if value < LEAST:
            continue
        start, end = _height(key, shape[1], tall), _height(query, shape[0], tall)
        third = WIDTH / 3
        path = f"M{INSET} {start:g}C{third:g} {start:g} {2 * third:g} {end:g} {WIDTH - INSET} {end:g}"
        lines.append(
            WeightLine(query, key, path, f"{0.12 + 0.88 * value:.2f}", f"{1 + 5 * value:.1f}", weight_text(value))
        )
    return lines


def _height(place: int, count: int, tall: int) -> float:
    """Middle of a token; the shorter column is centered."""
    return PITCH * (place + 0.5 + (tall - count) / 2)


def _summary(weights: NDArray[np.float64], queries: tuple[Label, ...], keys: tuple[Label, ...], step: int) -> str:
    step = min(step, len(weights) - 1)
    best = int(weights[step].argmax())
    return f"{queries[step].plain} attends most to {keys[best].plain}: {weight_text(float(weights[step, best]))}."


def _module(path: str) -> tuple[str, int | None, str]:
    names = path.split(".")
    if len(names) > 2 and names[1] == "layers":
        return names[0], int(names[2]), ".".join(names[3:])
    return names[0], None, ".".join(names[1:])
