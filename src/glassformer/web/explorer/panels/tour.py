"""The tour: the steps of the walkthrough on this sentence, each with the address of the view that it explains."""

from dataclasses import dataclass, replace

from glassformer.explain.example import Example
from glassformer.explain.page.wording import WordTable, words_of
from glassformer.explain.walkthrough.walkthrough import walkthrough
from glassformer.web.explorer.places import split_name
from glassformer.web.explorer.selection import Selection


@dataclass(frozen=True)
class TourStop:
    """One step; ``words`` are its tokens and merges, where it is about text."""

    number: int
    title: str
    what: str
    why: str
    formula: str
    reference: str
    passed: bool
    checks: tuple[str, ...]
    words: WordTable | None
    address: str


def tour_of(example: Example, selection: Selection) -> list[TourStop]:
    """All steps in the order of the computation."""
    stops = []
    for step in walkthrough(example):
        part, layer, sublayer, _ = split_name(example.model, f"{step.path}.output")
        stops.append(
            TourStop(
                step.number,
                step.title,
                step.what,
                step.why,
                step.formula,
                step.reference,
                step.passed,
                tuple(check.text for check in step.checks),
                words_of(step),
                replace(selection.at_module(part, layer, sublayer), tour=step.number).address,
            )
        )
    return stops


@dataclass(frozen=True)
class TourStrip:
    """The stop of a view, with the addresses of its neighbors; the last one has none after it."""

    stop: TourStop
    count: int
    before: str
    after: str
    all: str
    """Address of the list of all stops."""
    end: str
    """Address of this view without the tour."""


def strip_of(example: Example, selection: Selection, notes: list[str]) -> TourStrip | None:
    """The stop that the selection names; None without one."""
    if selection.tour is None:
        return None
    stops = tour_of(example, selection)
    place = min(max(selection.tour, 1), len(stops)) - 1
    if place + 1 != selection.tour:
        notes.append(f"tour={selection.tour:,} is outside 1 to {len(stops)}; this is step {place + 1}.")
    return TourStrip(
        stops[place],
        len(stops),
        stops[place - 1].address if place else "",
        stops[place + 1].address if place + 1 < len(stops) else "",
        replace(selection.at_model(), panel="tour", tour=None).address,
        replace(selection, tour=None).address,
    )
