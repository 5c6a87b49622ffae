"""The tour: the steps of the walkthrough on this sentence, each with the address of the view that it explains."""

from dataclasses import dataclass

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
                selection.at_module(part, layer, sublayer).address,
            )
        )
    return stops
