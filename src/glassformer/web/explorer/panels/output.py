"""Predictions at the selected step: the most probable outputs, and the rank of the one that is there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from glassformer.explain.example import Example
from glassformer.explain.matrix import Label
from glassformer.explain.page.sheets import entropy
from glassformer.text.decimals import aligned, probability
from glassformer.web.explorer.places import grid_axes, labels_of, select, steps_of
from glassformer.web.explorer.selection import Selection

LISTED = 10
"""Outputs that are listed."""
LONGEST_CONTEXT = 160
"""Characters of the text before the predicted token."""


@dataclass(frozen=True)
class OutputCandidate:
    index: int
    label: Label
    probability: float
    text: str
    address: str
    is_target: bool
    rank: int


@dataclass(frozen=True)
class OutputView:
    title: str
    context: str
    candidates: tuple[OutputCandidate, ...]
    others: str
    rest: str
    """Probability of the others."""
    entropy: str
    verdict: str
    numbers: str
    """Query of the logits, which the sliders fetch."""
    size: int
    address: str


def output_of(example: Example, selection: Selection) -> OutputView | None:
    """The distribution at the selected step; None for a model without one."""
    names = [name for name in example.trace if name.endswith(".probabilities")]
    if not names:
        return None
    name = names[-1]
    axes, values = grid_axes(example, name), example.trace[name][0].double().cpu().numpy()
    step = min(selection.step or 0, len(values) - 1) if len(axes) > 1 else 0
    row = values[step] if len(axes) > 1 else values
    labels = labels_of(example, name, axes[-1])[1]
    target = _target(example, step, axes)
    order = np.argsort(-row, kind="stable")
    ranks = {int(index): place + 1 for place, index in enumerate(order)}
    chosen = [int(index) for index in order[:LISTED]]
    if target is not None and target not in chosen:
        chosen[-1:] = [target]
    candidates = tuple(
        OutputCandidate(
            index,
            labels[index],
            float(row[index]),
            probability(float(row[index])),
            _address(example, selection, name, (step, index) if len(axes) > 1 else (index,)),
            index == target,
            ranks[index],
        )
        for index in chosen
    )
    rest = 1 - sum(one.probability for one in candidates)
    others = f"{len(row) - len(chosen):,} others" if len(row) > len(chosen) else ""
    return OutputView(
        _title(example, axes),
        _context(example, step),
        candidates,
        others,
        probability(max(rest, 0.0)),
        aligned(entropy(row[None]), 2),
        _verdict(labels, target, ranks),
        replace(selection, step=selection.step).address,
        len(row),
        select(selection, example, name).address,
    )


def _target(example: Example, step: int, axes: tuple[str, ...]) -> int | None:
    """The output that is there: the next token of a text."""
    if axes[-1] != "vocab" or step >= len(example.predicted_ids):
        return None
    return example.predicted_ids[step]


def _address(example: Example, selection: Selection, name: str, places: tuple[int, ...]) -> str:
    return select(selection, example, name, dict(zip(grid_axes(example, name), places, strict=True))).address


def _title(example: Example, axes: tuple[str, ...]) -> str:
    return (
        {"vocab": "Next word", "label": "Class", "tag": "Tag"}.get(axes[-1], "Output")
        if (example.task != "masked")
        else "Hidden word"
    )


def _context(example: Example, step: int) -> str:
    """The text before the predicted token."""
    if example.task in ("masked", "tagging"):
        return f"at {steps_of(example)[step].plain}"
    if example.task in ("classification", "images"):
        return "of the whole text" if example.task == "classification" else "of the whole image"
    side = example.sides[-1]
    before = side.vocabulary.decode(list(side.ids[: step + 1])).strip()
    if len(before) > LONGEST_CONTEXT:
        before = f"… {before[-LONGEST_CONTEXT:].partition(' ')[2] or before[-LONGEST_CONTEXT:]}"
    return f"after “{before}”" if before else "at the beginning"


def _verdict(labels: Sequence[Label], target: int | None, ranks: dict[int, int]) -> str:
    if target is None:
        return ""
    choice = "the first choice" if ranks[target] == 1 else f"choice {ranks[target]:,}"
    return f"“{labels[target].visible}” is {choice}"
