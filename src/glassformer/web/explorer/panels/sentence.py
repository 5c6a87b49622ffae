"""The sentence with its attention: two columns of tokens, and a line for each weight between them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from glassformer.explain.example import Example
from glassformer.explain.figures.attention import attention_views
from glassformer.explain.matrix import Label
from glassformer.text.decimals import share
from glassformer.web.explorer.panels.head_weights import HeadTable, HeadWeight, HeadWeights
from glassformer.web.explorer.panels.token_groups import group_side
from glassformer.web.explorer.selection import Selection

LEAST = 0.04
"""Weights below it have no line."""
PITCH, WIDTH, INSET = 34, 300, 8
"""Height of a token, and width of the space between the columns, in pixels."""
LONGEST = 64
"""Tokens of a column; further ones are left out, with a note."""


@dataclass(frozen=True)
class WeightLine:
    """``address`` is the number in the head that has most of the weight."""

    query: int
    key: int
    path: str
    opacity: str
    width: str
    text: str
    address: str
    place: str


@dataclass(frozen=True)
class TokenPlace:
    label: Label
    address: str
    current: bool


class DrawingChoice(NamedTuple):
    """A way to draw the attention: tokens or words, with or without special tokens."""

    text: str
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
    notes: tuple[str, ...]
    address: str
    """Address of the attention itself."""
    summary: str
    """Key with most attention of the chosen query, without the number."""
    largest: HeadWeight
    """Weight of that key."""
    choices: tuple[DrawingChoice, ...]
    query: str
    """The chosen query, of which there is a table."""
    by_head: HeadTable | None
    table_address: str
    """Address of this view with that table, or without it."""
    pattern: str
    """Address of a number of a line."""


def main_attention(example: Example) -> str:
    """Path of the attention that a first view shows: cross-attention of the last layer, or the last self-attention."""
    paths = [path for path in attention_views(example).values() if f"{path}.weights" in example.trace]
    crossing = [path for path in paths if path.endswith("cross_attention")]
    return (crossing or paths)[-1]


def sentence_of(example: Example, selection: Selection, path: str = "", head: int | None = None) -> SentenceView:
    """The attention at ``path``: one head, or the mean of all."""
    path = path or main_attention(example)
    sides = example.attention_sides(path.split(".")[0], path.rpartition(".")[2])
    recorded = example.trace[f"{path}.weights"][0].double().cpu().numpy()
    queries, keys = (group_side(side, selection) for side in sides)
    heads = HeadWeights(example, selection, path, recorded, queries, keys)
    weights = heads.chosen(head)
    labels = tuple(tuple(group.label for group in side.groups[:LONGEST]) for side in (queries, keys))
    shape = len(labels[0]), len(labels[1])
    current = queries.place_of(selection.step or 0)
    best = int(weights[current].argmax())
    title, address = attention_title(example, selection, path, head)
    return SentenceView(
        title,
        f"{sides[1].name} (key)",
        f"{sides[0].name} (query)",
        tuple(TokenPlace(label, "", False) for label in labels[1]),
        tuple(
            TokenPlace(label, replace(selection, step=group.members[0]).address, place == current)
            for place, (label, group) in enumerate(zip(labels[0], queries.groups, strict=False))
        ),
        tuple(_lines(heads, head, shape)),
        PITCH * max(shape),
        tuple(_notes(heads, shape)),
        address,
        f"{queries.groups[current].label.plain} attends most to {keys.groups[best].label.plain}",
        heads.number(head, current, best),
        tuple(_choices(selection, heads)),
        queries.groups[current].label.plain,
        heads.table(head, current) if selection.table else None,
        replace(selection, table="" if selection.table else "heads").address,
        heads.pattern,
    )


def _choices(selection: Selection, heads: HeadWeights) -> Iterator[DrawingChoice]:
    """Words or tokens, where they differ; special tokens or none, where there are some."""
    if selection.units or heads.changes_by("units"):
        yield DrawingChoice("tokens", replace(selection, units="").address, not selection.units)
        yield DrawingChoice("words", replace(selection, units="words").address, bool(selection.units))
    if selection.special or heads.changes_by("special"):
        yield DrawingChoice("with start and end", replace(selection, special="").address, not selection.special)
        yield DrawingChoice("without", replace(selection, special="hidden").address, bool(selection.special))


def _notes(heads: HeadWeights, shape: tuple[int, int]) -> Iterator[str]:
    longest = max(len(heads.queries.groups), len(heads.keys.groups))
    if longest > LONGEST:
        what = "words" if heads.selection.units else "tokens"
        yield f"The first {LONGEST} of {longest} {what} are shown here; matrices show all."
    if any(len(group.members) > 1 for side in (heads.queries, heads.keys) for group in side.groups):
        yield "A word as key has the sum of its tokens, as query their mean."
    if heads.keys.hidden:
        yield f"Hidden tokens of start and end have {share(heads.hidden_weight)} of the attention, so rows sum to less."


def attention_title(example: Example, selection: Selection, path: str, head: int | None) -> tuple[str, str]:
    """Title and address of an attention: of one head, or of the mean of all."""
    part, layer, sublayer = _module(path)
    layer_text = "" if layer is None else f", layer {layer}"
    name = f"{part}{layer_text}, {sublayer.replace('_', '-')}"
    count = int(example.trace[f"{path}.weights"].shape[1])
    title = f"{name}, mean of {count} heads" if head is None else f"{name}, head {head}"
    return title, replace(selection.at_module(part, layer, sublayer), head=head).address


def _lines(heads: HeadWeights, head: int | None, shape: tuple[int, int]) -> Iterator[WeightLine]:
    """Strong lines are drawn last, so that they lie above the others."""
    weights = heads.chosen(head)[: shape[0], : shape[1]]
    tall = max(shape)
    for flat in np.argsort(weights, axis=None, kind="stable"):
        query, key = divmod(int(flat), shape[1])
        value = float(weights[query, key])
        if value < LEAST:
            continue
        start, end = _height(key, shape[1], tall), _height(query, shape[0], tall)
        third = WIDTH / 3
        path = f"M{INSET} {start:g}C{third:g} {start:g} {2 * third:g} {end:g} {WIDTH - INSET} {end:g}"
        number = heads.number(head, query, key)
        opacity, width = f"{0.12 + 0.88 * value:.2f}", f"{1 + 5 * value:.1f}"
        yield WeightLine(
            query, key, path, opacity, width, f"{number.text}{number.origin}", number.address, number.place
        )


def _height(place: int, count: int, tall: int) -> float:
    """Middle of a token; the shorter column is centered."""
    return PITCH * (place + 0.5 + (tall - count) / 2)


def _module(path: str) -> tuple[str, int | None, str]:
    names = path.split(".")
    if len(names) > 2 and names[1] == "layers":
        return names[0], int(names[2]), ".".join(names[3:])
    return names[0], None, ".".join(names[1:])
