"""Questions that a view leaves open, each with the address of the view that answers it."""

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from glassformer.web.explorer.interventions import HeadOff
from glassformer.web.explorer.panels.lab import toggle_head
from glassformer.web.explorer.selection import Selection
from glassformer.web.explorer.traced import TracedSelection


class Question(NamedTuple):
    text: str
    address: str


def questions_of_word(selection: Selection, views: Collection[str]) -> list[Question]:
    """Views that explain the next word; ``views`` are the names of those that the example has."""
    texts = {"lens": "by layer", "lab": "by head", "attribution": "by token"}
    return [
        Question(text, replace(selection.at_model(), panel=name, effect="word" if name == "lab" else "").address)
        for name, text in texts.items()
        if name in views and name != selection.panel
    ]


def questions_of_head(traced: TracedSelection, views: Collection[str]) -> list[Question]:
    """Views that show the work of one head; none if the selection is not a head of attention."""
    selection = traced.selection
    path, head = selection.path, selection.head
    if head is None or selection.panel or selection.stage or not selection.sublayer:
        return []
    found = []
    if "lab" in views:
        is_off = any(isinstance(one, HeadOff) and one.place == (path, head) for one in traced.interventions)
        toggled = selection if is_off else toggle_head(selection, traced.interventions, path, head)
        text = "What changes without it" if is_off else "Switch it off"
        found.append(Question(text, replace(toggled.at_model(), panel="lab").address))
    if "alignment" in views and selection.sublayer == "cross_attention":
        reading = f"{selection.layer}.{head}.naive"
        found.append(
            Question("Words it aligns", replace(selection.at_model(), panel="alignment", reading=reading).address)
        )
    if "training" in views:
        found.append(Question("How it was learned", replace(selection, panel="training").address))
    return found
