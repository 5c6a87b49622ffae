"""The lab: what each head is worth to this sentence, and what the model says without some of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from glassformer.explain.analysis.heads import head_ablation
from glassformer.explain.analysis.interventions import Inputs, attentions
from glassformer.explain.example import Example
from glassformer.explain.matrix import Scale
from glassformer.explain.page.sheets import shade_class
from glassformer.predict.translator import Translator
from glassformer.taps import record
from glassformer.text.decimals import aligned
from glassformer.web.explorer.interventions import HeadOff, edits_of
from glassformer.web.explorer.places import labels_of
from glassformer.web.explorer.selection import Selection

MAX_HEADS = 64
"""Heads that are switched off one by one; a larger model has too many for a page."""
LISTED = 6


@dataclass(frozen=True)
class HeadToggle:
    number: int
    change: str
    shade: str
    off: bool
    address: str
    view: str


@dataclass(frozen=True)
class ToggleRow:
    title: str
    heads: tuple[HeadToggle, ...]


@dataclass(frozen=True)
class WordChange:
    text: str
    before: str
    after: str
    before_part: float
    after_part: float


@dataclass(frozen=True)
class LabView:
    rows: tuple[ToggleRow, ...]
    loss: str
    loss_after: str
    note: str
    before: str
    after: str
    words: tuple[WordChange, ...]
    step: str


def lab_of(
    original: Example, edited: Example, translator: Translator, heads: Sequence[HeadOff], selection: Selection
) -> LabView:
    """The panel for these heads; ``edited`` is the same input without them."""
    rows, note = _rows(original, heads, selection)
    step = selection.step or 0
    return LabView(
        tuple(rows),
        aligned(_loss(original), 3),
        aligned(_loss(edited), 3),
        note,
        translator.translate([original.source])[0],
        _translation(translator, original, heads) if heads else "",
        tuple(_words(original, edited, step)) if heads else (),
        labels_of(original, "decoder.layers.0.cross_attention.weights", "query")[1][step].visible,
    )


def _rows(original: Example, heads: Sequence[HeadOff], selection: Selection) -> tuple[list[ToggleRow], str]:
    known = attentions(original.model)
    count = sum(attention.n_heads for attention in known.values())
    changes: dict[str, list[float]] = {}
    note = f"This model has {count:,} heads; each alone is switched off only in models of up to {MAX_HEADS}."
    if count <= MAX_HEADS:
        predicted = torch.tensor([original.predicted_ids])
        ablation = head_ablation(original.model, Inputs.of(original), predicted)
        changes = dict(zip(ablation.attentions, (-ablation.loss_change).tolist(), strict=True))
        note = ""
    largest = max((abs(value) for row in changes.values() for value in row), default=1.0)
    scale, off = Scale("", -largest, largest, "signed"), {(one.path, one.head) for one in heads}
    rows = []
    for path, attention in known.items():
        toggles = []
        for number in range(attention.n_heads):
            value = changes[path][number] if path in changes else None
            is_off = (path, number) in off
            toggles.append(
                HeadToggle(
                    number,
                    "" if value is None else aligned(value, 3),
                    "" if value is None else shade_class(value, scale),
                    is_off,
                    _toggled(selection, heads, path, number).address,
                    _view(selection, path, number).address,
                )
            )
        title = path.replace(".layers.", " layer ").replace(".", " ").replace("_", "-")
        rows.append(ToggleRow(title, tuple(toggles)))
    return rows, note


def _toggled(selection: Selection, heads: Sequence[HeadOff], path: str, number: int) -> Selection:
    """The selection with this head switched off, or on again."""
    others = [one for one in heads if (one.path, one.head) != (path, number)]
    added = [] if len(others) < len(heads) else [HeadOff(path, number, "zero")]
    return replace(selection, interventions=tuple(one.text for one in (*others, *added)))


def _view(selection: Selection, path: str, number: int) -> Selection:
    part, _, layer, sublayer = path.split(".")
    return replace(selection.at_module(part, int(layer), sublayer), head=number)


def _loss(example: Example) -> float:
    """Negative log-likelihood of the target in nats a token."""
    rows = example.trace["output_projection.log_probabilities"][0].double()
    predicted = torch.tensor(example.predicted_ids, device=rows.device)
    return -float(rows.gather(1, predicted[:, None]).mean())


def _translation(translator: Translator, original: Example, heads: Sequence[HeadOff]) -> str:
    """The model's own translation without the heads; their mean needs a whole sentence, so zero takes its place."""
    zeros = [replace(one, by="zero") for one in heads]
    with record(translator.models[0], keep="candidate_*", edits=edits_of(zeros, original)):
        return translator.translate([original.source])[0]


def _words(original: Example, edited: Example, step: int) -> list[WordChange]:
    """The most probable words before and after, by their larger probability."""
    name = "output_projection.probabilities"
    before, after = (one.trace[name][0, step].double() for one in (original, edited))
    labels = labels_of(original, name, "vocab")[1]
    order = torch.maximum(before, after).argsort(descending=True, stable=True)[:LISTED].tolist()
    return [
        WordChange(
            labels[index].visible,
            aligned(float(before[index]), 4),
            aligned(float(after[index]), 4),
            100 * float(before[index]),
            100 * float(after[index]),
        )
        for index in order
    ]
