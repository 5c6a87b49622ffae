"""Word links of one example, by every head of its cross-attention, and the head that aligns best by gold links."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from glassformer.alignment.attention import word_weights
from glassformer.alignment.links import GoldLinks, LinkScores, link_scores
from glassformer.explain.example import Example
from glassformer.explain.figures.attention import attention_views
from glassformer.predict.alignment import HeadLinks, WordAttention


class ScoredHead(NamedTuple):
    """One head, or a mean of heads, in both readings."""

    links: HeadLinks
    naive: LinkScores
    shifted: LinkScores

    def scores(self, shifted: bool) -> LinkScores:
        """Scores of a reading."""
        return self.shifted if shifted else self.naive


def cross_attentions(example: Example) -> list[str]:
    """Path of each recorded attention over the source, from the first layer to the last."""
    paths = attention_views(example).values()
    return [path for path in paths if path.endswith("cross_attention") and f"{path}.weights" in example.trace]


def example_words(example: Example) -> tuple[list[int], list[int]]:
    """Word of each source token and of each target token, without start and end."""
    source, target = example.sides[0], example.sides[-1]
    return source.vocabulary.word_of(source.ids[:-1]), target.vocabulary.word_of(target.ids[1:])


def example_attention(example: Example) -> WordAttention | None:
    """The recorded attention of a translation by words; None where a side has no words."""
    words = example_words(example)
    paths = cross_attentions(example)
    if min(max(words[0], default=-1), max(words[1], default=-1)) < 0 or not paths:
        return None
    weights = torch.cat([example.trace[f"{path}.weights"] for path in paths]).double().cpu()
    return WordAttention(word_weights(weights, *words), word_weights(weights, *words, shifted=True))


def head_links(attentions: Sequence[WordAttention]) -> list[HeadLinks]:
    """The links of every head of every layer for a corpus, and after the heads of a layer those of their mean."""
    layers, heads = attentions[0].naive.shape[:2]
    return [
        HeadLinks(
            layer,
            head,
            [frozenset(one.links(layer, head)) for one in attentions],
            [frozenset(one.links(layer, head, shifted=True)) for one in attentions],
        )
        for layer in range(layers)
        for head in (*range(heads), None)
    ]


def score_heads(heads: Sequence[HeadLinks], gold: Sequence[GoldLinks]) -> list[ScoredHead]:
    """Scores of each head in both readings. ``DataError`` if there is neither a gold link nor a proposed one."""
    sure, possible = [one.sure for one in gold], [one.possible for one in gold]
    return [
        ScoredHead(one, link_scores(sure, possible, one.naive), link_scores(sure, possible, one.shifted))
        for one in heads
    ]
