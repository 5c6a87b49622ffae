"""Word alignment from the decoder's attention over the source, and its error rate."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.alignment.attention import in_decoder, one_head, strongest_links, word_weights
from glassformer.alignment.links import Links, alignment_error_rate
from glassformer.errors import DataError
from glassformer.predict.translator import Translator


@dataclass(frozen=True)
class WordAttention:
    """The cross-attention of one pair by words, ``[layer, head, target word, source word]``, read in two ways.

    ``naive``: at the steps that predict a target word. ``shifted``: at those where it is the decoder's input, which
    aligns better in the deep models of Chen et al. 2020 (arXiv:2004.14837); in shallow ones it is the other way round.
    What a row lacks to 1 is on the end token.
    """

    naive: Tensor
    shifted: Tensor

    def links(self, layer: int = -1, head: int | None = None, shifted: bool = False) -> list[tuple[int, int]]:
        """(source word, target word) by one head, or by the mean of the heads of ``layer``."""
        return strongest_links(one_head(self.shifted if shifted else self.naive, layer, head))


def word_attention(translator: Translator, source: str, target: str) -> WordAttention:
    """The attention of the (first) model; without words where ``source`` or ``target`` is empty."""
    tokenizers = translator.tokenizers
    source_ids, target_ids = tokenizers.source.encode(source), tokenizers.target.encode(target)
    if not source_ids or not target_ids:
        nothing = torch.zeros(*_layers_and_heads(translator), 0, 0)
        return WordAttention(nothing, nothing)
    weights = translator.cross_attention(source, target).weights
    words = tokenizers.source.word_of(source_ids), tokenizers.target.word_of(target_ids)
    return WordAttention(word_weights(weights, *words), word_weights(weights, *words, shifted=True))


@dataclass(frozen=True)
class HeadLinks:
    """Links that one head of one layer proposes for a corpus; ``head`` None is the mean of the heads."""

    layer: int
    head: int | None
    naive: list[Links]
    shifted: list[Links]

    @property
    def name(self) -> str:
        which = "the mean of its heads" if self.head is None else f"head {self.head}"
        return f"decoder layer {self.layer}, {which}"

    def error_rate(
        self, gold: Sequence[Links], shifted: bool = False, possible: Sequence[Links] | None = None
    ) -> float:
        """AER over the corpus (``alignment_error_rate``); the sure links, ``gold``, are a subset of ``possible``."""
        return alignment_error_rate(gold, possible or gold, self.shifted if shifted else self.naive)


def links_of_heads(translator: Translator, sources: Sequence[str], targets: Sequence[str]) -> list[HeadLinks]:
    """The proposals of every head of every layer, and after the heads of a layer those of their mean."""
    if len(sources) != len(targets):
        raise DataError(f"{len(sources)} sources and {len(targets)} targets; give as many of each")
    layers, n_heads = _layers_and_heads(translator)
    heads: list[int | None] = [*range(n_heads), None]
    found = [HeadLinks(layer, head, [], []) for layer in range(layers) for head in heads]
    for source, target in zip(sources, targets):
        attention = word_attention(translator, source, target)
        for one in found:
            one.naive.append(frozenset(attention.links(one.layer, one.head)))
            one.shifted.append(frozenset(attention.links(one.layer, one.head, shifted=True)))
    return found


def chosen(found: Sequence[HeadLinks], layer: int, head: int | None) -> HeadLinks:
    """Select one head, or the mean when ``head`` is None; negative indices count from the end."""
    layers = 1 + max(one.layer for one in found)
    heads = 1 + max(one.head for one in found if one.head is not None)
    for name, value, size in (("layer", layer, layers), ("head", head, heads)):
        in_decoder(name, value, size)
    expected = layer % layers, head if head is None else head % heads
    return next(one for one in found if (one.layer, one.head) == expected)


def best_head(
    found: Sequence[HeadLinks], gold: Sequence[Links], possible: Sequence[Links] | None = None
) -> tuple[HeadLinks, bool]:
    """The one with the lowest AER, the first of equals, and whether that is its shifted reading."""
    readings = [(one, shifted) for shifted in (False, True) for one in found]
    return min(readings, key=lambda reading: reading[0].error_rate(gold, reading[1], possible))


def _layers_and_heads(translator: Translator) -> tuple[int, int]:
    """Layers and heads with attention over the source: all of a Transformer's decoder, one of a recurrent one."""
    every = translator.models[0].named_modules()
    asking = [module for path, module in every if path.endswith("cross_attention")]
    return len(asking), asking[0].n_heads
