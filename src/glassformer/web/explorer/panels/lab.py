"""The lab: what each head is worth to this sentence, and what the model says with interventions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple
from urllib.parse import quote_plus

import torch

from glassformer.explain.analysis.heads import HeadAblation, head_ablation
from glassformer.explain.analysis.interventions import Inputs, attentions
from glassformer.explain.example import Example
from glassformer.explain.matrix import Label, Scale
from glassformer.explain.page.sheets import shade_class
from glassformer.text.decimals import aligned
from glassformer.web.explorer.interventions import HeadOff, Intervention, place_text
from glassformer.web.explorer.panels.before_after import BeforeAfter, before_after_of
from glassformer.web.explorer.panels.patch_grid import PatchPanel, patch_panel_of
from glassformer.web.explorer.panels.sentence import main_attention
from glassformer.web.explorer.selection import Selection
from glassformer.web.explorer.traced import TracedSelection

HEAD = "head"
"""Intervention in the pattern of an address: a large model has as many addresses as heads."""
MAX_HEADS = 64
"""Heads that are switched off one by one; a larger model has too many for a page."""


@dataclass(frozen=True)
class HeadToggle:
    number: int
    change: str
    shade: str
    off: bool
    address: str


@dataclass(frozen=True)
class ToggleRow:
    title: str
    heads: tuple[HeadToggle, ...]


class EffectChoice(NamedTuple):
    """Tokens by which heads are measured: all predicted ones, or that of the selected step."""

    text: str
    address: str
    current: bool


@dataclass(frozen=True)
class LabView:
    """``pending`` is true if numbers of the heads follow in a second answer."""

    rows: tuple[ToggleRow, ...]
    pending: bool
    note: str
    change: BeforeAfter | None
    patching: PatchPanel
    weights: str
    """Address of a matrix of attention weights, whose rows can be edited."""
    unit: str
    """Name of the predicted tokens, whose log-probability changes."""
    measured: str
    """Tokens that the numbers of the heads are about, and their unit."""
    effects: tuple[EffectChoice, ...]


def lab_of(traced: TracedSelection, suggestion: str) -> LabView:
    """The panel of the whole model under the interventions of ``traced``; ``suggestion`` is a second sentence."""
    original, selection = traced.original, traced.selection
    count = sum(attention.n_heads for attention in attentions(original.model).values())
    note, changes = "", None
    if count <= MAX_HEADS:
        ablation = traced.result(("heads",), lambda: ablation_of(original, traced.give_way))
        changes = None if ablation is None else _changes(ablation, predicted_step(original, selection))
    else:
        note = f"This model has {count:,} heads; each alone is switched off only in models of up to {MAX_HEADS}."
    weights = replace(_view(selection, main_attention(original), 0), stage="weights")
    unit = {"masked": "hidden words", "language": "text"}.get(original.task, "target")
    return LabView(
        tuple(_rows(original, traced.interventions, selection, changes or {})),
        changes is None and not note,
        note,
        before_after_of(traced),
        patch_panel_of(traced, suggestion),
        weights.address,
        unit,
        *_effects(original, selection, unit),
    )


def ablation_of(original: Example, before_run: Callable[[], None] = lambda: None) -> HeadAblation:
    """The log-probability of each predicted token with each head off alone."""
    predicted = torch.tensor([original.predicted_ids])
    return head_ablation(original.model, Inputs.of(original), predicted, before_run=before_run)


def predicted_step(original: Example, selection: Selection) -> int | None:
    """Step of the token by which heads are measured; None for all tokens that are predicted."""
    step = selection.step or 0
    return step if selection.effect == "word" and _predicted(original, step) else None


def _predicted(original: Example, step: int) -> Label | None:
    """Label of the token that is predicted at ``step``; None where nothing is."""
    if step >= len(original.predicted_ids) or not bool(Inputs.of(original).counted[0, step]):
        return None
    return Label(original.sides[-1].vocabulary.tokens([original.predicted_ids[step]])[0], "vocabulary")


def _changes(ablation: HeadAblation, step: int | None) -> dict[str, list[float]]:
    """Change of the log-probability without each head: of the token at ``step``, or the mean over all of them."""
    change = -ablation.loss_change if step is None else ablation.change[:, :, 0, step]
    return dict(zip(ablation.attentions, change.tolist(), strict=True))


def _effects(original: Example, selection: Selection, unit: str) -> tuple[str, tuple[EffectChoice, ...]]:
    """Tokens that the numbers of the heads are about, and the addresses of both choices if there are two."""
    word = _predicted(original, selection.step or 0)
    chosen = predicted_step(original, selection) is not None
    text = f"the {unit}, in nats a token"
    if word is None:
        return text, ()
    every = f"all {unit}" if original.task == "masked" else f"the whole {unit}"
    choices = ((every, "", not chosen), (f"{word.plain} alone", "word", chosen))
    return (
        f"{word.plain}, in nats" if chosen else text,
        tuple(EffectChoice(name, replace(selection, effect=key).address, now) for name, key, now in choices),
    )


def _rows(
    original: Example,
    interventions: tuple[Intervention, ...],
    selection: Selection,
    changes: Mapping[str, list[float]],
) -> list[ToggleRow]:
    largest = max((abs(value) for row in changes.values() for value in row), default=1.0)
    scale = Scale("", -largest, largest, "signed")
    off = {(one.path, one.head) for one in interventions if isinstance(one, HeadOff)}
    texts = tuple(one.text for one in interventions)
    with_one = replace(selection, interventions=(*texts, HEAD)).address
    rows = []
    for path, attention in attentions(original.model).items():
        toggles = []
        for number in range(attention.n_heads):
            value = changes[path][number] if path in changes else None
            is_off = (path, number) in off
            added = quote_plus(HeadOff(path, number, "zero").text)
            address = with_one.replace(f"edit={HEAD}", f"edit={added}")
            toggles.append(
                HeadToggle(
                    number,
                    "" if value is None else aligned(value, 3),
                    "" if value is None else shade_class(value, scale),
                    is_off,
                    toggle_head(selection, interventions, path, number).address if is_off else address,
                )
            )
        rows.append(ToggleRow(place_text(path), tuple(toggles)))
    return rows


def toggle_head(selection: Selection, interventions: tuple[Intervention, ...], path: str, number: int) -> Selection:
    """The selection with this head switched off, or on again."""
    others = [one for one in interventions if one.place != (path, number)]
    added = [] if len(others) < len(interventions) else [HeadOff(path, number, "zero")]
    return replace(selection, interventions=tuple(one.text for one in (*others, *added)))


def _view(selection: Selection, path: str, number: int) -> Selection:
    part, _, layer, sublayer = path.split(".")
    return replace(selection.at_module(part, int(layer), sublayer), head=number)
