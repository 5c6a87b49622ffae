"""Weights of an attention by head: a head or the mean of all, and the number that each weight comes from."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassformer.explain.analysis.attention_measures import entropy
from glassformer.explain.example import Example
from glassformer.explain.matrix import WEIGHTS, Label
from glassformer.explain.page.sheets import shade_class
from glassformer.text.decimals import aligned
from glassformer.text.decimals import weight as weight_text
from glassformer.web.explorer.panels.token_groups import GroupedSide, grouped_weights, has_choice
from glassformer.web.explorer.places import split_name
from glassformer.web.explorer.selection import Selection

LISTED = 32
"""Keys of the table."""
HEAD, ROW, COLUMN = 9_999_990, 9_999_991, 9_999_992
"""Places in the pattern of an address, which ``lines.js`` fills in: an address of each line would be a large page."""


class HeadWeight(NamedTuple):
    """A weight. ``origin`` says how it is made of the number at ``address``, if it is not that number."""

    value: float
    text: str
    shade: str
    address: str
    place: str
    """Head, row and column of the address: ``1-2-3``."""
    origin: str = ""


@dataclass(frozen=True)
class HeadWeightRow:
    """``entropy`` is that of the row; empty if tokens are hidden or together."""

    name: str
    address: str
    weights: tuple[HeadWeight, ...]
    entropy: str
    current: bool


@dataclass(frozen=True)
class HeadTable:
    """Weights of one query in each head, and at the end their mean."""

    query: Label
    keys: tuple[Label, ...]
    rows: tuple[HeadWeightRow, ...]
    limit: str

    @property
    def has_entropy(self) -> bool:
        """True if the rows are whole distributions."""
        return bool(self.rows[0].entropy)


@dataclass(frozen=True)
class HeadWeights:
    """``recorded`` are the weights ``[head, query, key]`` of the attention at ``path``."""

    example: Example
    selection: Selection
    path: str
    recorded: NDArray[np.float64]
    queries: GroupedSide
    keys: GroupedSide

    @cached_property
    def grouped(self) -> NDArray[np.float64]:
        """``[head, query, key]``, as drawn."""
        return grouped_weights(self.recorded, self.queries, self.keys)

    @cached_property
    def mean(self) -> NDArray[np.float64]:
        """``[query, key]``, the mean of the heads."""
        mean: NDArray[np.float64] = self.grouped.mean(0)
        return mean

    def chosen(self, head: int | None) -> NDArray[np.float64]:
        """``[query, key]`` of a head, or the mean of all."""
        return self.mean if head is None else self.grouped[head]

    @property
    def hidden_weight(self) -> float:
        """Mean weight of the hidden keys."""
        return float(self.recorded[..., list(self.keys.hidden)].sum(-1).mean())

    def changes_by(self, field: str) -> bool:
        """True if a choice would change the drawing: a word has several tokens, or there are special ones."""
        stack, kind = self.path.split(".")[0], self.path.rpartition(".")[2]
        sides = self.example.attention_sides(stack, kind)
        return any(has_choice(side, field) for side in sides)

    def number(self, head: int | None, query: int, key: int) -> HeadWeight:
        """A drawn weight, with the address of the largest number that it is made of."""
        value = float(self.chosen(head)[query, key])
        best = int(self.grouped[:, query, key].argmax()) if head is None else head
        rows, columns = self.queries.groups[query].members, self.keys.groups[key].members
        place, count = (rows[0], columns[0]), len(rows) * len(columns)
        if count > 1:
            block = self.recorded[best][np.ix_(rows, columns)]
            row, column = divmod(int(block.argmax()), len(columns))
            place = rows[row], columns[column]
        largest = float(self.recorded[best][place])
        origin = ""
        if head is None and len(self.recorded) > 1:
            origin = f", the mean of {len(self.recorded)} heads; the largest is {weight_text(largest)} of head {best}"
        elif count > 1:
            origin = f", of {count} numbers; the largest is {weight_text(largest)}"
        texts = weight_text(value), shade_class(value, WEIGHTS), self._address(best, *place)
        return HeadWeight(value, *texts, f"{best}-{place[0]}-{place[1]}", origin)

    def table(self, head: int | None, query: int) -> HeadTable:
        """The row of one query in every head."""
        keys = range(min(len(self.keys.groups), LISTED))
        whole = self.queries.is_plain and self.keys.is_plain
        rows = []
        for number in [*range(len(self.recorded)), None]:
            if number is None and len(self.recorded) == 1:
                continue
            row = self.chosen(number)[query]
            rows.append(
                HeadWeightRow(
                    "mean" if number is None else f"head {number}",
                    "" if number is None else replace(self._module, head=number).address,
                    tuple(self.number(number, query, key) for key in keys),
                    aligned(entropy(row[None]), 2) if whole else "",
                    number == head,
                )
            )
        count = len(self.keys.groups)
        limit = f"The first {len(keys)} of {count} keys are shown; the matrix of a head shows all."
        labels = tuple(self.keys.groups[key].label for key in keys)
        return HeadTable(self.queries.groups[query].label, labels, tuple(rows), limit if count > len(keys) else "")

    @cached_property
    def pattern(self) -> str:
        """Address of a number, with the places ``HEAD``, ``ROW`` and ``COLUMN``."""
        return replace(self._module, head=HEAD, stage="weights", row=ROW, column=COLUMN).address

    @cached_property
    def _module(self) -> Selection:
        part, layer, sublayer, _ = split_name(self.example.model, f"{self.path}.weights")
        return self.selection.at_module(part, layer, sublayer)

    def _address(self, head: int, row: int, column: int) -> str:
        address = self.pattern
        for place, value in ((HEAD, head), (ROW, row), (COLUMN, column)):
            address = address.replace(f"={place}", f"={value}")
        return address
