"""The grid of patches: how far each activation of the second sentence, put in place alone, moves the output."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.explain.analysis.interventions import Inputs, patch_from, run
from glassformer.explain.analysis.patching import Contrast, patch_effects, patch_groups
from glassformer.explain.example import Example
from glassformer.explain.formula.dataflow import residual_stream, stacks
from glassformer.explain.matrix import Label, Scale
from glassformer.explain.page.sheets import shade_class
from glassformer.text.decimals import aligned
from glassformer.web.explorer.interventions import ActivationPatch, Intervention, label_at, shared_length
from glassformer.web.explorer.panels.wording import in_quotes
from glassformer.web.explorer.places import labels_of, steps_of
from glassformer.web.explorer.selection import Selection
from glassformer.web.explorer.traced import TracedSelection

GROUPS = {
    "stream": "residual stream",
    "self_attention": "self-attention output",
    "cross_attention": "cross-attention output",
}
MAX_WORK = 1e11
"""Multiplications of a grid; of a larger one a part of the positions is computed."""
LONGEST = 32
"""Positions of a grid."""
LOGITS = "output_projection.logits"


@dataclass(frozen=True)
class GroupTab:
    text: str
    address: str
    current: bool


@dataclass(frozen=True)
class PatchCell:
    """``value`` is the number in full; ``text`` is empty where the donor has no such position."""

    text: str
    value: float
    shade: str
    address: str
    pressed: bool
    key: str
    title: str


@dataclass(frozen=True)
class PatchRow:
    title: str
    cells: tuple[PatchCell, ...]


@dataclass(frozen=True)
class PatchGrid:
    """``rows`` is empty while it follows in a second answer; ``message`` says why there is none."""

    tabs: tuple[GroupTab, ...]
    columns: tuple[Label, ...]
    axis: str
    rows: tuple[PatchRow, ...]
    definition: str
    summary: str
    check: str
    passed: bool
    limit: str
    pages: tuple[GroupTab, ...]
    message: str


@dataclass(frozen=True)
class PatchPanel:
    donor: str
    output: str
    """Output of the model for the donor."""
    suggestion: str
    suggested: str
    """Address with the suggestion as donor."""
    hidden: tuple[tuple[str, str], ...]
    """Fields of the form that keep the rest of the address."""
    grid: PatchGrid | None


@dataclass(frozen=True)
class Effects:
    """``values[name, place]``; the last place is all positions."""

    values: NDArray[np.float64]
    exact: bool | None
    """True if the whole of the last layer gives the donor's logits to the bit; None if the lengths differ."""


def resolve_grid(selection: Selection, example: Example, notes: list[str]) -> Selection:
    """The nearest group of activations that the model has."""
    if not selection.grid:
        return selection
    group, _, start = selection.grid.partition(":")
    if group in patch_groups(example.model) and re.fullmatch("[0-9]{0,7}", start):
        return selection
    notes.append(f"There is no group of activations {selection.grid[:40]!r}; this is the first one.")
    return replace(selection, grid="")


def patch_panel_of(traced: TracedSelection, suggestion: str) -> PatchPanel:
    """The input of the second sentence and, if there is one, the grid."""
    selection, donor = traced.selection, traced.donor
    rest = replace(selection, donor="").address.removeprefix("?")
    return PatchPanel(
        selection.donor,
        "" if donor is None or donor.translated else donor.output,
        suggestion,
        replace(selection, donor=suggestion).address,
        tuple(parse_qsl(rest, keep_blank_values=True)),
        None if donor is None else _grid(traced, donor),
    )


def _grid(traced: TracedSelection, donor: Example) -> PatchGrid:
    original, selection = traced.original, traced.selection
    groups = patch_groups(original.model)
    group, _, start = (selection.grid or next(iter(groups))).partition(":")
    names = groups[group]
    tabs = tuple(
        GroupTab(_group_text(original, one), replace(selection, grid=one).address, one == group) for one in groups
    )
    axis, labels = labels_of(original, names[0], "position")
    window = _window(original, names, int(start or 0))
    step = selection.step or 0
    contrast = _contrast(original, donor, step)
    columns = tuple(labels[place] for place in window)
    empty = PatchGrid(tabs, columns, axis, (), "", "", "", True, "", (), "")
    if contrast is None:
        where = steps_of(original)[step].plain
        return replace(empty, message=f"At {where} both sentences have the same output; choose another step.")
    key = "patches", donor.input, group, window, step
    effects = traced.result(key, lambda: _effects(traced, donor, names, window, contrast))
    if effects is None:
        return replace(empty, definition=_definition(original, contrast, step))
    shared = shared_length(original.trace, donor.trace, names[0])
    rows = _rows(traced, names, window, effects, shared)
    limit, pages = _pages(selection, group, window, len(labels))
    if shared < len(labels):
        limit = f"The donor has {shared} positions, so later ones have no patch. {limit}".rstrip()
    return PatchGrid(
        tabs,
        columns,
        axis,
        rows,
        _definition(original, contrast, step),
        _summary(original, names, window, effects),
        _check(effects, original),
        effects.exact is not False,
        limit,
        pages,
        "",
    )


def _contrast(original: Example, donor: Example, step: int) -> Contrast | None:
    """The contrast of the outputs at a step; of a shorter donor at its last one."""
    other = donor.trace[LOGITS][0]
    return Contrast.of(original.trace[LOGITS][0, step], other[min(step, len(other) - 1)])


def _window(example: Example, names: Sequence[str], start: int) -> tuple[int, ...]:
    """Positions that are computed: all of them if that does not take long."""
    size = example.trace[names[0]].size(1)
    parameters = sum(
        one.numel() for stack in stacks(example.model) for one in example.model.get_submodule(stack).parameters()
    )
    tokens = sum(len(side.tokens) for side in example.sides)
    most = max(2, min(LONGEST, int(MAX_WORK / (parameters * tokens * len(names)))))
    first = max(0, min(start // most * most, size - most)) if start < size else max(0, size - most)
    return tuple(range(first, min(size, first + most)))


def _effects(
    traced: TracedSelection,
    donor: Example,
    names: Sequence[str],
    window: Sequence[int],
    contrast: Contrast,
) -> Effects:
    """The effects of a grid; each row gives way to other views."""
    original, step = traced.original, traced.selection.step or 0
    shared = shared_length(original.trace, donor.trace, names[0])
    places = [[place] for place in window if place < shared] + [list(range(shared))]
    inputs = Inputs.of(original)
    full = np.full((len(names), len(window) + 1), np.nan)
    for row, name in enumerate(names):
        traced.give_way()
        values = patch_effects(original.model, inputs, donor.trace, [name], places, step, contrast)[0].cpu().numpy()
        full[row, : len(places) - 1], full[row, -1] = values[:-1], values[-1]
    exact = None
    if [len(side.tokens) for side in original.sides] == [len(side.tokens) for side in donor.sides]:
        last = residual_stream(original.model, stacks(original.model)[-1])[-1]
        with torch.no_grad():
            logits = run(original.model, inputs, patch_from(donor.trace, [last]))
        exact = torch.equal(logits, donor.trace[LOGITS])
    return Effects(full, exact)


def _rows(
    traced: TracedSelection, names: Sequence[str], window: Sequence[int], effects: Effects, shared: int
) -> tuple[PatchRow, ...]:
    finite = np.abs(effects.values[np.isfinite(effects.values)])
    largest = max(1.0, float(finite.max()))
    scale = Scale("", -largest, largest, "signed")
    rows = []
    for name, values in zip(names, effects.values.tolist(), strict=True):
        title = row_title(name)
        cells = []
        for place, value in zip((*window, None), values, strict=True):
            text = "" if place is not None and place >= shared else aligned(round(value, 2) + 0.0, 2)
            token = "" if place is None or place >= shared else label_at(traced.original, name, place)
            patch = ActivationPatch(name, place, token)
            cells.append(
                PatchCell(
                    text,
                    value,
                    shade_class(value, scale) if text else "x",
                    _toggled(traced, patch).address if text else "",
                    patch in traced.interventions,
                    patch.text,
                    patch.title,
                )
            )
        rows.append(PatchRow(title, tuple(cells)))
    return tuple(rows)


def row_title(name: str) -> str:
    """``layer 1``, ``embedding`` or ``memory``."""
    layer = re.search(r"\.layers\.([0-9]+)\.", name)
    return f"layer {layer[1]}" if layer else "memory" if name == "memory" else "embedding"


def _toggled(traced: TracedSelection, patch: ActivationPatch) -> Selection:
    """The selection with this patch, or without it if it is there."""
    others: list[Intervention] = [one for one in traced.interventions if one != patch]
    if len(others) == len(traced.interventions):
        others.append(patch)
    return replace(traced.selection, interventions=tuple(one.text for one in others))


def _group_text(example: Example, group: str) -> str:
    stack, _, kind = group.partition(".")
    if not kind:
        return "memory"
    text = GROUPS[kind]
    return f"{stack}: {text}" if len(stacks(example.model)) > 1 else text


def _definition(example: Example, contrast: Contrast, step: int) -> str:
    """Definition of a number of the grid, in one sentence."""
    words = labels_of(example, LOGITS, "vocab")[1]
    where = steps_of(example)[step].plain
    return (
        f"Each number is the effect of one patch alone on the output at {where}: the logit of "
        f"{in_quotes(words[contrast.rising])} minus that of {in_quotes(words[contrast.falling])}, scaled so that 0 is "
        "the sentence and 1 the donor."
    )


def _summary(example: Example, names: Sequence[str], window: Sequence[int], effects: Effects) -> str:
    values = np.nan_to_num(effects.values[:, :-1], nan=-np.inf)
    name, place = divmod(int(values.argmax()), values.shape[1])
    if not np.isfinite(values[name, place]):
        return ""
    token = label_at(example, names[name], window[place])
    return (
        f"The largest effect of one position is {aligned(values[name, place], 2)}: {row_title(names[name])} at {token}."
    )


def _check(effects: Effects, original: Example) -> str:
    count = original.trace[LOGITS].numel()
    if effects.exact is None:
        return ""
    if effects.exact:
        return f"✓ The donor's last layer, all positions, gives the donor's logits exactly: {count:,} equal numbers."
    return "✗ The donor's last layer, all positions, does not give the donor's logits."


def _pages(selection: Selection, group: str, window: Sequence[int], size: int) -> tuple[str, tuple[GroupTab, ...]]:
    """A sentence on the positions that the grid leaves out, and links to them."""
    if len(window) == size:
        return "", ()
    pages = []
    if window[0] > 0:
        before = max(0, window[0] - len(window))
        pages.append(GroupTab("← earlier positions", replace(selection, grid=f"{group}:{before}").address, False))
    if window[-1] + 1 < size:
        after = replace(selection, grid=f"{group}:{window[-1] + 1}").address
        pages.append(GroupTab("further positions →", after, False))
    return f"Positions {window[0]} to {window[-1]} of {size} are computed, as each needs a run of the model.", tuple(
        pages
    )
