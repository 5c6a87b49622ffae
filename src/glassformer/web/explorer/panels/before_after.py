"""Before and after: the output, the loss and the next word with interventions, beside those of the original."""

from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.explain.analysis.interventions import Inputs
from glassformer.explain.example import Example
from glassformer.taps import Edit
from glassformer.text.decimals import aligned
from glassformer.web.explorer.interventions import ActivationPatch, HeadOff, RowEdit, edits_of
from glassformer.web.explorer.models import ExploredText, ExploredTranslator
from glassformer.web.explorer.places import labels_of, steps_of
from glassformer.web.explorer.traced import TracedSelection

LISTED = 6
LOGITS, PROBABILITIES = "output_projection.logits", "output_projection.probabilities"


@dataclass(frozen=True)
class WordChange:
    text: str
    before: str
    after: str
    before_part: float
    after_part: float


@dataclass(frozen=True)
class OutputChange:
    """The model's own output, before and after."""

    before: str
    after: str


@dataclass(frozen=True)
class BeforeAfter:
    """``output`` is None while it follows in a second answer."""

    title: str
    search: str
    output: OutputChange | None
    loss: str
    loss_after: str
    words_title: str
    words: tuple[WordChange, ...]
    kinds: str


def before_after_of(traced: TracedSelection) -> BeforeAfter | None:
    """The panel; None without interventions."""
    if not traced.interventions:
        return None
    original, edited = traced.original, traced.example
    step = traced.selection.step or 0
    title, search, words = _titles(traced)
    return BeforeAfter(
        title,
        search,
        _output(traced),
        aligned(loss_of(original, original), 3),
        aligned(loss_of(edited, original), 3),
        f"{words} {steps_of(original)[step].plain}",
        tuple(words_of(original, edited, step)),
        kinds_of(traced),
    )


def loss_of(example: Example, original: Example) -> float:
    """Negative log-likelihood, in nats a token, of what is predicted in ``original``."""
    rows = example.trace["output_projection.log_probabilities"][0].double()
    predicted = torch.tensor(original.predicted_ids, device=rows.device)
    counted = Inputs.of(original).counted[0]
    return -float(rows.gather(1, predicted[:, None])[counted].mean())


def words_of(original: Example, edited: Example, step: int, count: int = LISTED) -> list[WordChange]:
    """The most probable words before and after, by their larger probability."""
    before, after = (one.trace[PROBABILITIES][0, step].double() for one in (original, edited))
    labels = labels_of(original, PROBABILITIES, "vocab")[1]
    order = torch.maximum(before, after).argsort(descending=True, stable=True)[:count].tolist()
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


def kinds_of(traced: TracedSelection) -> str:
    """``1 head off, 2 patches``"""
    kinds = ((HeadOff, "head off", "heads off"), (ActivationPatch, "patch", "patches"), (RowEdit, "row", "rows"))
    texts = []
    for kind, one, several in kinds:
        count = sum(isinstance(intervention, kind) for intervention in traced.interventions)
        if count:
            texts.append(f"{count} {one if count == 1 else several}{' edited' if kind is RowEdit else ''}")
    return ", ".join(texts)


def _is_stepwise(traced: TracedSelection) -> bool:
    """True if the output needs a search that reads the whole beginning of the target at each step."""
    return any(not isinstance(one, HeadOff) or one.by != "zero" for one in traced.interventions)


def _output(traced: TracedSelection) -> OutputChange | None:
    """Both outputs; that of the original is the same for all interventions."""
    stepwise, donor = _is_stepwise(traced), "" if traced.donor is None else traced.donor.input
    explored = traced.explored
    assert isinstance(explored, ExploredTranslator | ExploredText)
    rewritten = explored.rewritten
    idle = {} if traced.is_small or traced.original.task == "masked" else _giving_way(traced)
    before = traced.result(("output", stepwise), lambda: rewritten(traced.original, idle, stepwise))
    key = "output", donor, *(one.text for one in traced.interventions)
    trace = None if traced.donor is None else traced.donor.trace
    edits = {**edits_of(traced.interventions, traced.original, trace), **_giving_way(traced)}
    after = traced.result(key, lambda: rewritten(traced.original, edits, stepwise))
    return None if before is None or after is None else OutputChange(before, after)


def _giving_way(traced: TracedSelection) -> dict[str, Edit]:
    """An edit without effect, by which each step of a search gives way to other views.

    Kernels cannot be interrupted, and a search of base size takes 0.6 s. With an edit PyTorch computes it, a step in
    17 ms.
    """

    def give_way(logits: Tensor) -> Tensor:
        traced.give_way()
        return logits

    return {LOGITS: give_way}


def _titles(traced: TracedSelection) -> tuple[str, str, str]:
    """Titles of the output and of the next word, and the search of the output."""
    match traced.original.task:
        case "language":
            return "Continuation", "greedy search", "Next word after"
        case "masked":
            return "Text", "", "Word at"
    return "Translation", "greedy search" if _is_stepwise(traced) else "", "Next word at"
