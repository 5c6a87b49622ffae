"""Interventions: heads off, patches and edited rows of attention; their forms in the address, and their edits."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

import torch
from torch import Tensor

from glassformer.explain.analysis.interventions import Inputs, Off, attentions, in_turn, switch_off
from glassformer.explain.analysis.patching import patch_groups
from glassformer.explain.example import Example
from glassformer.explain.trace import Trace
from glassformer.taps import Edit
from glassformer.web.explorer.places import labels_of

MAX_INTERVENTIONS = 64
MAX_NOTES = 4
"""Ignored interventions that are named."""
UNITS = 1000
"""Weight 1 of an edited row in the address, which has whole numbers."""
WHOLE = "all"
"""Position of a patch that takes all positions from the donor."""


@dataclass(frozen=True)
class HeadOff:
    """A head whose context is replaced: by zero, or by its mean over the positions."""

    path: str
    head: int
    by: Off

    @property
    def text(self) -> str:
        """``decoder.layers.1.cross_attention.3:zero``, as in the address."""
        return f"{self.path}.{self.head}:{self.by}"

    @property
    def title(self) -> str:
        """``decoder layer 1 cross-attention, head 3: zero``"""
        return f"{place_text(self.path)}, head {self.head}: {self.by}"

    @property
    def place(self) -> tuple[object, ...]:
        """Key of the replaced numbers; a second intervention there takes the place of the first."""
        return self.path, self.head

    def edits(self, example: Example, donor: Trace | None) -> dict[str, Edit]:
        """Edits by the names of tensors."""
        edits = switch_off(example.model, {self.path: [self.head]}, self.by, Inputs.of(example))
        return {name: _of_several_positions(edit) for name, edit in edits.items()}


@dataclass(frozen=True)
class ActivationPatch:
    """A tensor that is the donor's at one position, or at all that both have if ``position`` is None."""

    name: str
    position: int | None
    token: str = field(default="", compare=False)
    """Label of the position."""

    @property
    def text(self) -> str:
        """``encoder.layers.1.self_attention.result@3``; ``@all`` for all positions."""
        return f"{self.name}@{WHOLE if self.position is None else self.position}"

    @property
    def title(self) -> str:
        """``encoder layer 1 self-attention, position 3 “cat”: patched``"""
        where = "all positions" if self.position is None else f"position {self.position} {self.token}".rstrip()
        return f"{place_text(self.name)}, {where}: patched"

    @property
    def place(self) -> tuple[object, ...]:
        """Key of the replaced numbers."""
        return self.name, self.position

    def edits(self, example: Example, donor: Trace | None) -> dict[str, Edit]:
        """The donor's positions, as far as a tensor has them: a search reads a beginning of the target."""
        assert donor is not None
        replacement = donor[self.name]

        def edit(tensor: Tensor) -> Tensor:
            shared = min(tensor.size(1), replacement.size(1))
            places = range(shared) if self.position is None else [self.position]
            chosen = [place for place in places if place < shared]
            edited = tensor.clone()
            edited[:, chosen] = replacement[:, chosen].to(tensor)
            return edited

        return {self.name: edit}


@dataclass(frozen=True)
class RowEdit:
    """Attention weights of one query of a head, in thousandths; they are divided by their sum."""

    path: str
    head: int
    query: int
    units: tuple[int, ...]
    token: str = field(default="", compare=False)
    """Label of the query."""

    @property
    def text(self) -> str:
        """``decoder.layers.1.cross_attention.3.2:500-250-0-250``"""
        return f"{self.path}.{self.head}.{self.query}:{'-'.join(map(str, self.units))}"

    @property
    def title(self) -> str:
        """``decoder layer 1 cross-attention, head 3: row 2 “chat” edited``"""
        return f"{place_text(self.path)}, head {self.head}: row {self.query} {self.token}".rstrip() + " edited"

    @property
    def place(self) -> tuple[object, ...]:
        """Key of the replaced numbers."""
        return self.path, self.head, self.query

    def edits(self, example: Example, donor: Trace | None) -> dict[str, Edit]:
        """The row; that of the model, to the bit, if it is the same in thousandths."""

        def edit(weights: Tensor) -> Tensor:
            if self.query >= weights.size(2):
                return weights
            row = torch.tensor(self.units[: weights.size(3)], dtype=torch.float64, device=weights.device)
            own = weights[0, self.head, self.query]
            if not row.any() or units_of(own) == tuple(self.units[: weights.size(3)]):
                return weights
            edited = weights.clone()
            edited[:, self.head, self.query] = (row / row.sum()).to(weights)
            return edited

        return {f"{self.path}.weights": edit}


Intervention = HeadOff | ActivationPatch | RowEdit


def units_of(row: Tensor) -> tuple[int, ...]:
    """Weights in thousandths."""
    return tuple((row.double() * UNITS).round().int().tolist())


def place_text(name: str) -> str:
    """``decoder.layers.1.cross_attention.result`` → ``decoder layer 1 cross-attention``."""
    short = re.sub(r"\.(result|feed_forward_norm\.(sum|normed)|positioned|segmented|scaled|normed)$", "", name)
    return short.replace(".layers.", " layer ").replace(".", " ").replace("_attention", "-attention").replace("_", " ")


def parse_interventions(
    texts: Iterable[str], example: Example, notes: list[str], donor: Trace | None = None
) -> list[Intervention]:
    """The interventions of an address that the model can have; ``notes`` gets a line for each other."""
    found: dict[tuple[object, ...], Intervention] = {}
    ignored: list[str] = []
    for text in texts:
        try:
            if len(found) == MAX_INTERVENTIONS:
                raise ValueError(f"is one of more than {MAX_INTERVENTIONS} interventions")
            one = _parse(text, example, notes, donor)
        except ValueError as error:
            ignored.append(f"{text[:60]!r} {error} and is ignored.")
            continue
        found[one.place] = one
    notes += ignored[:MAX_NOTES]
    if len(ignored) > MAX_NOTES:
        notes.append(f"{len(ignored) - MAX_NOTES:,} further interventions are ignored.")
    return list(found.values())


def _parse(text: str, example: Example, notes: list[str], donor: Trace | None) -> Intervention:
    """One intervention. ``ValueError`` with the predicate of a sentence about ``text``."""
    if "@" in text:
        return _parse_patch(text, example, donor)
    place, _, value = text.rpartition(":")
    if re.fullmatch(r"[0-9]{1,7}(-[0-9]{1,7})*", value) and re.search(r"\.[0-9]{1,7}\.[0-9]{1,7}$", place):
        return _parse_row(place, tuple(map(int, value.split("-"))), example, notes)
    path, _, head = place.rpartition(".")
    attention = attentions(example.model).get(path)
    if value not in get_args(Off) or attention is None or not _is_index(head, attention.n_heads):
        raise ValueError("is no head of this model")
    return HeadOff(path, int(head), value)  # type: ignore[arg-type]


def _parse_patch(text: str, example: Example, donor: Trace | None) -> ActivationPatch:
    name, _, place = text.partition("@")
    if name not in {one for names in patch_groups(example.model).values() for one in names}:
        raise ValueError("is no activation of this model that can be patched")
    if donor is None:
        raise ValueError("needs a second sentence, the donor,")
    if place == WHOLE:
        return ActivationPatch(name, None)
    shared = shared_length(example.trace, donor, name)
    if not _is_index(place, shared):
        raise ValueError(f"is outside positions 0 to {shared - 1}, which both sentences have,")
    return ActivationPatch(name, int(place), label_at(example, name, int(place)))


def _parse_row(place: str, units: tuple[int, ...], example: Example, notes: list[str]) -> RowEdit:
    path, head, query = place.rsplit(".", 2)
    attention = attentions(example.model).get(path)
    if attention is None or not _is_index(head, attention.n_heads):
        raise ValueError("is no head of this model")
    _, _, rows, keys = example.trace[f"{path}.weights"].shape
    if not _is_index(query, rows):
        raise ValueError(f"is outside rows 0 to {rows - 1} of this attention")
    if len(units) != keys:
        raise ValueError(f"has {len(units)} weights for {keys} keys")
    allowed = allowed_keys(example.trace, path, int(head), int(query))
    cleared = tuple(unit if seen else 0 for unit, seen in zip(units, allowed, strict=True))
    if not any(cleared):
        raise ValueError("has only zeros, which no division makes a row of attention,")
    if cleared != units:
        notes.append(f"Row {query} of {place_text(path)} has weights at keys that the mask hides; they are 0.")
    label = labels_of(example, f"{path}.weights", "query")[1][int(query)]
    return RowEdit(path, int(head), int(query), cleared, label.plain)


def _is_index(text: str, count: int) -> bool:
    return bool(re.fullmatch("[0-9]{1,7}", text)) and int(text) < count


def shared_length(trace: Trace, donor: Trace, name: str) -> int:
    """Positions of a tensor that both traces have."""
    return min(trace[name].size(1), donor[name].size(1))


def allowed_keys(trace: Trace, path: str, head: int, query: int) -> Sequence[bool]:
    """True for each key that the mask lets a query attend to."""
    if f"{path}.mask" not in trace:
        return [True] * trace[f"{path}.weights"].size(-1)
    mask: Sequence[bool] = trace[f"{path}.mask"][0, head, query].bool().tolist()
    return mask


def label_at(example: Example, name: str, position: int) -> str:
    """Label of a position in a sentence: ``“cat”``."""
    return labels_of(example, name, "position")[1][position].plain


def replaced_rows(interventions: Iterable[str], name: str, head: int | None) -> tuple[int, ...] | None:
    """Rows of this tensor and head that an intervention replaces, which no formula gives then; None for all rows."""
    path, _, tap = name.rpartition(".")
    rows = set()
    for text in interventions:
        place, _, value = text.rpartition(":")
        if text == f"{name}@{WHOLE}" or (
            tap == "context" and place == f"{path}.{head or 0}" and value in get_args(Off)
        ):
            return None
        if text.startswith(f"{name}@"):
            rows.add(int(text.partition("@")[2]))
        elif tap == "weights" and place.rpartition(".")[0] == f"{path}.{head or 0}":
            rows.add(int(place.rpartition(".")[2]))
    return tuple(sorted(rows))


def is_replaced(interventions: Iterable[str], name: str, head: int | None, row: int | None = None) -> bool:
    """True if an intervention replaces numbers of this tensor and head, or those of one row."""
    rows = replaced_rows(interventions, name, head)
    return rows is None or (bool(rows) if row is None else row in rows)


def edits_of(interventions: Iterable[Intervention], example: Example, donor: Trace | None = None) -> Mapping[str, Edit]:
    """Edits of the tensors of ``example``: patches first, then rows, then heads off."""
    groups: dict[str, list[Edit]] = {}
    order = (ActivationPatch, RowEdit, HeadOff)
    for one in sorted(interventions, key=lambda one: order.index(type(one))):
        for name, edit in one.edits(example, donor).items():
            groups.setdefault(name, []).append(edit)
    return {name: in_turn(*edits) for name, edits in groups.items()}


def _of_several_positions(edit: Edit) -> Edit:
    """The mean over one position is that position, as at the first step of a search."""

    def edited(context: Tensor) -> Tensor:
        return edit(context) if context.size(2) > 1 else context

    return edited
