"""Word alignments, layer by layer: two rows of words with lines between them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.alignment.attention import strongest_links, word_weights
from glassformer.explain.example import Example
from glassformer.explain.figures.attention import attention_views
from glassformer.explain.matrix import Label, columns_of
from glassformer.explain.page.wording import direction
from glassformer.text import TokenizerPair

LETTER, SPACE = 9.6, 26
"""Widths at the size of the words, in pixels."""


@dataclass(frozen=True)
class PlacedWord:
    label: Label
    x: float


@dataclass(frozen=True)
class Link:
    """``source`` and ``target`` are numbers of words."""

    source: int
    target: int
    weight: float


@dataclass(frozen=True)
class LinkReading:
    """``name`` says which of the two readings of the attention it is."""

    name: str
    meaning: str
    links: tuple[Link, ...]

    @property
    def pharaoh(self) -> str:
        return " ".join(f"{link.source}-{link.target}" for link in sorted(self.links, key=_order))


@dataclass(frozen=True)
class LayerLinks:
    layer: int
    readings: tuple[LinkReading, LinkReading]

    @property
    def rows(self) -> list[tuple[Link, Link]]:
        """Naive and shifted, a target word a row."""
        naive, shifted = (sorted(one.links, key=lambda link: link.target) for one in self.readings)
        return list(zip(naive, shifted, strict=True))


@dataclass(frozen=True)
class Alignment:
    width: float
    source: tuple[PlacedWord, ...]
    target: tuple[PlacedWord, ...]
    layers: tuple[LayerLinks, ...]
    summary: str


def alignment_of(example: Example) -> Alignment | None:
    """From what was traced, the mean of a layer's heads; None where a side has no words."""
    tokenizers: TokenizerPair = example.translator.tokenizers
    source_ids, target_ids = example.source_ids[:-1], example.target_ids[1:]
    words = tokenizers.source.word_of(source_ids), tokenizers.target.word_of(target_ids)
    if max(words[0], default=-1) < 0 or max(words[1], default=-1) < 0:
        return None
    names = [f"{path}.weights" for path in attention_views(example).values() if path.endswith("cross_attention")]
    layers = range(len(names))
    weights = torch.cat([example.trace[name] for name in names]).double().cpu()
    readings = [word_weights(weights.mean(1), *words, shifted=shifted) for shifted in (False, True)]
    found = tuple(LayerLinks(n, (_naive(readings[0][n]), _shifted(readings[1][n]))) for n in layers)
    source, target = example.sides[0].words, example.sides[-1].words
    width = max(_width(source), _width(target))
    same = sum(naive.source == shifted.source for naive, shifted in found[-1].rows)
    summary = f"In the last layer the two readings agree on {same} of {len(target)} words."
    return Alignment(width, _placed(source, width), _placed(target, width), found, summary)


def _naive(weights: Tensor) -> LinkReading:
    return LinkReading("naive", "at the steps that predict the word", _links(weights))


def _shifted(weights: Tensor) -> LinkReading:
    return LinkReading("shifted", "at the steps at which the word is the decoder's input", _links(weights))


def _links(weights: Tensor) -> tuple[Link, ...]:
    return tuple(Link(s, t, float(weights[t, s])) for s, t in strongest_links(weights))


def _order(link: Link) -> tuple[int, int]:
    return link.source, link.target


def _width(labels: Sequence[Label]) -> float:
    return sum(columns_of(label.visible) * LETTER + SPACE for label in labels)


def _placed(labels: Sequence[Label], width: float) -> tuple[PlacedWord, ...]:
    """Spread over the width; a text that is written from the right begins there."""
    spare = (width - _width(labels)) / len(labels)
    placed, x = [], 0.0
    for label in labels:
        own = columns_of(label.visible) * LETTER + SPACE + spare
        placed.append(PlacedWord(label, x + own / 2))
        x += own
    if direction(" ".join(label.text for label in labels)) == "rtl":
        placed = [PlacedWord(word.label, width - word.x) for word in placed]
    return tuple(placed)
