"""Free running beside teacher forcing: what the model writes by itself, and where it first leaves the target."""

from dataclasses import dataclass, replace

from glassformer.explain.matrix import Label
from glassformer.text.decimals import probability
from glassformer.web.explorer.models import ExploredTranslator
from glassformer.web.explorer.panels.wording import in_quotes
from glassformer.web.explorer.places import labels_of
from glassformer.web.explorer.runs import version_of
from glassformer.web.explorer.traced import TracedSelection

PROBABILITIES = "output_projection.probabilities"
SAME, FIRST, AFTER = "same", "first", "after"


@dataclass(frozen=True)
class FreeStep:
    """A token that the model wrote. ``state``: as in the target, the first that differs, or one after it."""

    label: Label
    address: str
    state: str


@dataclass(frozen=True)
class FreeRunning:
    """``steps`` is empty while they follow in a second answer."""

    steps: tuple[FreeStep, ...]
    summary: str


def free_running_of(traced: TracedSelection) -> FreeRunning | None:
    """The greedy translation of the source beside a forced target; None if the target is the model's own."""
    explored, example, selection = traced.explored, traced.example, traced.selection
    if not isinstance(explored, ExploredTranslator) or selection.mode != "forced" or traced.interventions:
        return None
    key = ("free running", *version_of(traced.checkpoint), selection.source)
    now = traced.complete or traced.is_small
    written = traced.results.store.find(key, (lambda: _greedy(traced)) if now else None)
    if written is None:
        return FreeRunning((), "")
    target = tuple(example.predicted_ids)
    shared = next((place for place, pair in enumerate(zip(written, target)) if pair[0] != pair[1]), None)
    labels = labels_of(example, PROBABILITIES, "vocab")[1]
    own = replace(selection.at_model(), mode="greedy", target="")
    steps = tuple(
        FreeStep(
            labels[token],
            replace(own, step=place).address,
            SAME if shared is None or place < shared else FIRST if place == shared else AFTER,
        )
        for place, token in enumerate(written)
    )
    return FreeRunning(steps, _summary(traced, written, shared))


def _greedy(traced: TracedSelection) -> tuple[int, ...]:
    """Tokens of the greedy translation, with the end token if it ended."""
    assert isinstance(traced.explored, ExploredTranslator)
    traced.give_way()
    translator = traced.explored.translator
    [[found]] = translator.hypotheses([traced.selection.source], beam_size=1, n_best=1, sample=False)
    return tuple(found.hypothesis.predicted(translator.symbols.end))


def _summary(traced: TracedSelection, written: tuple[int, ...], shared: int | None) -> str:
    """The first divergence, with both probabilities after the words that both rows share."""
    example = traced.example
    if shared is None:
        return "By itself the model writes the target."
    labels = labels_of(example, PROBABILITIES, "vocab")[1]
    row = example.trace[PROBABILITIES][0, shared]
    own, target = written[shared], example.predicted_ids[shared]
    return (
        f"First divergence at step {shared}: the model chooses {in_quotes(labels[own])} "
        f"({probability(float(row[own]))}), the target has {in_quotes(labels[target])} "
        f"({probability(float(row[target]))})."
    )
