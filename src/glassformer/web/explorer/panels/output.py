"""Predictions at the selected step: the most probable outputs, and the rank of the one that is there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from glassformer.explain.example import Example
from glassformer.explain.matrix import Label
from glassformer.text.decimals import aligned, probability
from glassformer.web.explorer.panels.wording import in_quotes
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
    logit: str
    """Logit of the output, and its address; both are empty where the model records none."""
    logit_address: str
    term: str
    """Term of the entropy, −p ln p."""


@dataclass(frozen=True)
class OutputView:
    title: str
    context: str
    candidates: tuple[OutputCandidate, ...]
    others: str
    rest: str
    """Probability of the others."""
    entropy: str
    rest_term: str
    """Terms of the entropy of the others."""
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
    chosen = [int(index) for index in order[:LISTED]]
    if target is not None and target not in chosen:
        chosen[-1:] = [target]
    terms = -row * np.log(np.where(row > 0, row, 1.0))
    candidates = []
    for index in chosen:
        place = (step, index) if len(axes) > 1 else (index,)
        rank = int(np.flatnonzero(order == index)[0]) + 1
        value = float(row[index])
        address = _address(example, selection, name, place)
        texts = (*_logit(example, selection, name, place), aligned(float(terms[index]), 4))
        candidates.append(
            OutputCandidate(index, labels[index], value, probability(value), address, index == target, rank, *texts)
        )
    rest = 1 - sum(one.probability for one in candidates)
    rest_term = float(terms.sum()) - sum(float(terms[index]) for index in chosen)
    others = f"{len(row) - len(chosen):,} others" if len(row) > len(chosen) else ""
    return OutputView(
        _title(example, axes),
        _context(example, step),
        tuple(candidates),
        others,
        probability(max(rest, 0.0)),
        aligned(float(terms.sum()), 2),
        aligned(max(rest_term, 0.0), 4),
        _verdict(labels, target, next((one.rank for one in candidates if one.is_target), 0)),
        replace(selection, step=selection.step).address,
        len(row),
        select(selection, example, name).address,
    )


def _logit(example: Example, selection: Selection, name: str, place: tuple[int, ...]) -> tuple[str, str]:
    """The logit behind a probability, and its address; two empty texts where the model records none."""
    logits = f"{name.removesuffix('.probabilities')}.logits"
    if logits not in example.trace:
        return "", ""
    return aligned(float(example.trace[logits][(0, *place)]), 3), _address(example, selection, logits, place)


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


def _verdict(labels: Sequence[Label], target: int | None, rank: int) -> str:
    if target is None:
        return ""
    choice = "the first choice" if rank == 1 else f"choice {rank:,}"
    return f"{in_quotes(labels[target])} is {choice}"
