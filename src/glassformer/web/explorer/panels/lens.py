"""The logit lens: what the model would say after each of its layers, at the selected step and at all of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from glassformer.explain.analysis.lens import Lens, Readable, logit_lens
from glassformer.explain.example import Example
from glassformer.explain.matrix import WEIGHTS, Label
from glassformer.explain.page.sheets import shade_class
from glassformer.text.decimals import probability
from glassformer.web.explorer.panels.patch_grid import row_title
from glassformer.web.explorer.panels.wording import in_quotes
from glassformer.web.explorer.places import labels_of, select, steps_of
from glassformer.web.explorer.selection import Selection

LISTED = 5
LONGEST = 32
"""Steps of the table of all steps."""
LOGITS = "output_projection.logits"


@dataclass(frozen=True)
class LensWord:
    text: str
    probability: str
    part: float
    is_target: bool


@dataclass(frozen=True)
class LensLayer:
    """A layer at the selected step; ``address`` is its residual stream."""

    title: str
    address: str
    words: tuple[LensWord, ...]
    rank: str
    target: str


@dataclass(frozen=True)
class LensCell:
    text: str
    shade: str
    address: str
    is_target: bool
    key: str
    title: str


@dataclass(frozen=True)
class LensView:
    """``layers`` of the selected step, first to last; ``rows`` has the best word of each layer at each step."""

    where: str
    target: str
    layers: tuple[LensLayer, ...]
    columns: tuple[Label, ...]
    axis: str
    rows: tuple[tuple[str, tuple[LensCell, ...]], ...]
    current: int
    """Column of the selected step."""
    summary: str
    check: str
    passed: bool
    limit: str


def has_lens(example: Example) -> bool:
    """True if the model has logits of words after a stack of layers."""
    return isinstance(example.model, Readable) and example.task in ("translation", "language", "masked")


def lens_of(example: Example, selection: Selection) -> LensView:
    """The panel at the selected step."""
    lens = logit_lens(example.trace, torch.tensor([example.predicted_ids]))
    words, steps = labels_of(example, LOGITS, "vocab")[1], steps_of(example)
    step = selection.step or 0
    first = max(0, min(step // LONGEST * LONGEST, len(steps) - LONGEST))
    visible = range(first, min(len(steps), first + LONGEST))
    layers = tuple(_layer(example, selection, lens, place, words) for place in range(len(lens.places)))
    rows = tuple(
        (row_title(name), tuple(_cell(example, replace(selection, step=at), lens, place, words) for at in visible))
        for place, name in reversed(list(enumerate(lens.places)))
    )
    equal = torch.equal(lens.logits[-1], example.trace[LOGITS])
    target = words[example.predicted_ids[step]].visible
    return LensView(
        steps[step].plain,
        target,
        layers,
        tuple(steps[at] for at in visible),
        "step" if example.translated else "text",
        rows,
        step - first,
        _summary(lens, step, in_quotes(words[example.predicted_ids[step]])),
        _check(equal, example.trace[LOGITS].numel()),
        equal,
        f"Steps {first} to {visible[-1]} of {len(steps)} are shown." if len(visible) < len(steps) else "",
    )


def _layer(example: Example, selection: Selection, lens: Lens, place: int, words: Sequence[Label]) -> LensLayer:
    step, name = selection.step or 0, lens.places[place]
    target, row = example.predicted_ids[step], _probabilities(lens, place, step)
    order = row.argsort(descending=True, stable=True)[:LISTED].tolist()
    listed = tuple(
        LensWord(words[index].visible, probability(float(row[index])), 100 * float(row[index]), index == target)
        for index in order
    )
    address = select(selection, example, name).address
    rank = f"{int(lens.rank[place, 0, step]):,}"
    return LensLayer(row_title(name), address, listed, rank, probability(float(row[target])))


def _cell(example: Example, selection: Selection, lens: Lens, place: int, words: Sequence[Label]) -> LensCell:
    """The best word of a layer at the step of ``selection``."""
    step = selection.step or 0
    row = _probabilities(lens, place, step)
    best = int(row.argmax())
    value = float(row[best])
    name, rank = row_title(lens.places[place]), int(lens.rank[place, 0, step])
    title = f"{name} at {steps_of(example)[step].plain}: {in_quotes(words[best])} {probability(value)}"
    return LensCell(
        words[best].visible,
        shade_class(value, WEIGHTS),
        selection.address,
        rank == 1,
        f"lens-{place}-{step}",
        f"{title}, rank of the target {rank:,}",
    )


def _probabilities(lens: Lens, place: int, step: int) -> Float[Tensor, " vocab"]:
    return lens.logits[place, 0, step].double().softmax(-1)


def _check(equal: bool, count: int) -> str:
    if equal:
        return f"✓ After the last layer the lens gives the model's logits exactly: {count:,} equal numbers."
    return "✗ After the last layer the lens does not give the model's logits."


def _summary(lens: Lens, step: int, target: str) -> str:
    """The first layer from which on the target is the first choice."""
    ranks = lens.rank[:, 0, step].tolist()
    if ranks[-1] != 1:
        return f"{target} is choice {ranks[-1]:,} after the last layer."
    since = next(place for place in range(len(ranks)) if all(rank == 1 for rank in ranks[place:]))
    return f"{target} is the first choice from {row_title(lens.places[since])} on."
