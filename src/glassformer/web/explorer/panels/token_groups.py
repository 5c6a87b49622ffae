"""Tokens of a drawn attention in groups: each alone, or those of a word together; special tokens may be left out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from glassformer.explain.example import Side
from glassformer.explain.matrix import Label
from glassformer.predict.filler import MASK
from glassformer.text.words import END_OF_WORD, JOINER
from glassformer.web.explorer.selection import Selection


@dataclass(frozen=True)
class TokenGroup:
    """Positions that one place of the drawing stands for."""

    label: Label
    members: tuple[int, ...]


@dataclass(frozen=True)
class GroupedSide:
    """A side of an attention. ``hidden`` are the positions that are left out."""

    groups: tuple[TokenGroup, ...]
    hidden: tuple[int, ...]

    @property
    def is_plain(self) -> bool:
        """True if each token stands alone and none is left out."""
        return not self.hidden and all(len(group.members) == 1 for group in self.groups)

    def place_of(self, position: int) -> int:
        """The group of a position; the nearest one before it if it is left out."""
        starts = [place for place, group in enumerate(self.groups) if group.members[0] <= position]
        return starts[-1] if starts else 0


def group_side(side: Side, selection: Selection) -> GroupedSide:
    """The groups that the selection asks for; a side without a tokenizer, or without words, keeps its positions."""
    words = _words_of(side)
    hidden = _hidden(side, words) if selection.special else ()
    if len(hidden) == len(side.labels):
        hidden = ()
    together: list[list[int]] = []
    last = -1
    for position, word in enumerate(words):
        if position in hidden:
            continue
        if selection.units and word >= 0 and word == last:
            together[-1].append(position)
        else:
            together.append([position])
        last = word
    groups = tuple(TokenGroup(_label(side, members, bool(selection.units)), tuple(members)) for members in together)
    return GroupedSide(groups, hidden)


def has_choice(side: Side, field: str) -> bool:
    """True if ``units`` or ``special`` would change a side."""
    words = _words_of(side)
    if field == "special":
        return 0 < len(_hidden(side, words)) < len(words)
    return any(word >= 0 and word == before for before, word in pairwise(words))


def grouped_weights(weights: NDArray[np.float64], queries: GroupedSide, keys: GroupedSide) -> NDArray[np.float64]:
    """``[head, query, key]`` by groups: the mean of the rows of a group, the sum of its columns."""
    if queries.is_plain and keys.is_plain:
        return weights
    columns = np.stack([weights[..., list(group.members)].sum(-1) for group in keys.groups], -1)
    return np.stack([columns[:, list(group.members)].mean(1) for group in queries.groups], 1)


def _words_of(side: Side) -> Sequence[int]:
    """Word of each position; −1 for special tokens, and where there are no words."""
    if side.tokenizer is None or len(side.ids) != len(side.labels):
        return [-1] * len(side.labels)
    return side.vocabulary.word_of(side.ids)


def _hidden(side: Side, words: Sequence[int]) -> tuple[int, ...]:
    """Special tokens, but those of masked words, which are what such a text is about."""
    if side.tokenizer is None:
        return ()
    return tuple(place for place, word in enumerate(words) if word < 0 and side.tokens[place] != MASK)


def _label(side: Side, members: Sequence[int], words: bool) -> Label:
    labels = [side.labels[place] for place in members]
    if not words:
        return labels[0]
    text = "".join(label.text for label in labels).replace(END_OF_WORD, "").replace(JOINER, "")
    return replace(labels[0], text=text.strip() or labels[0].text, span=len(labels))
