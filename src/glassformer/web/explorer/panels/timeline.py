"""The timeline: the tokens of the target with their probabilities; each is a step that can be explained."""

from dataclasses import dataclass, replace

from glassformer.explain.example import Example
from glassformer.explain.matrix import Label
from glassformer.text.decimals import aligned
from glassformer.web.explorer.places import steps_of
from glassformer.web.explorer.selection import Selection

TITLES = {"images": "Image, patch by patch", "forecasting": "Series, patch by patch"}


@dataclass(frozen=True)
class TimelineStep:
    number: int
    label: Label
    probability: str
    part: int
    """Percent of the probability, for the bar."""
    address: str
    current: bool


@dataclass(frozen=True)
class Timeline:
    title: str
    steps: tuple[TimelineStep, ...]
    before: str
    after: str
    first: str
    """Token that is read before the first step; empty for a model of one text."""


def timeline_of(example: Example, selection: Selection) -> Timeline:
    """One step for each token that is predicted or read."""
    labels, current = steps_of(example), selection.step or 0
    steps = []
    for number, label in enumerate(labels):
        value = probability_of(example, number)
        text, part = ("", 0) if value is None else (aligned(value, 2), round(100 * value))
        address = _at_step(example, selection, number)
        steps.append(TimelineStep(number, label, text, part, address, number == current))
    before = steps[current - 1].address if current else ""
    after = steps[current + 1].address if current + 1 < len(steps) else ""
    title = "Target, word by word" if example.translated else TITLES.get(example.task, "Text, token by token")
    first = example.target_tokens[0] if example.translated else ""
    return Timeline(title, tuple(steps), before, after, first)


def probability_of(example: Example, number: int) -> float | None:
    """Probability of the token of a step, by the logits of the position before it; None where nothing predicts it."""
    name = "output_projection.probabilities"
    row = number if example.translated else number - 1
    if name not in example.trace or example.task in ("masked", "images") or row < 0:
        return None
    return float(example.trace[name][0, row, example.predicted_ids[row]])


def _at_step(example: Example, selection: Selection, number: int) -> str:
    """The same view at another step: the row moves along if it is that of the step."""
    row = selection.row
    if row is not None and row == selection.step and selection.part in ("decoder", "output_projection"):
        row = number
    return replace(selection, step=number, row=row).address
