"""The other side of a comparison: the selection that the address means by it, and its example."""

from dataclasses import dataclass, replace

from glassformer.errors import GlassformerError
from glassformer.explain.example import Example
from glassformer.storage.run_folder import step_of
from glassformer.web.explorer.panels.before_after import kinds_of
from glassformer.web.explorer.panels.compare import CompareView, compare_of
from glassformer.web.explorer.runs import CheckpointChoice, choose_run, listed_checkpoints
from glassformer.web.explorer.selection import Selection
from glassformer.web.explorer.session import Session
from glassformer.web.explorer.traced import TracedSelection


@dataclass(frozen=True)
class OtherSide:
    """Choices in the form of the other side, and the current ones."""

    runs: tuple[tuple[str, str], ...]
    run: str
    checkpoints: tuple[CheckpointChoice, ...]
    checkpoint: str
    source: str
    address: str
    """This view without another side of its own choice."""


@dataclass(frozen=True)
class BesideView:
    """The panel: ``view`` is None where there is no other side, or ``problem`` says why it cannot be shown."""

    other: OtherSide
    view: CompareView | None
    problem: str
    notes: tuple[str, ...]


def compare_with_other(session: Session, traced: TracedSelection) -> BesideView:
    """This view beside its other side; one that cannot be shown is a sentence, and this side goes on."""
    notes: list[str] = []
    other = _other_selection(session, traced)
    form = _form(session, traced.selection, other)
    if other is None:
        return BesideView(form, None, "", ())
    try:
        beside = session.examine(other, notes)
    except GlassformerError as error:
        return BesideView(form, None, str(error), tuple(notes))
    view = compare_of(beside.example, traced.example, _names(beside, traced), traced.selection)
    return BesideView(form, view, "", tuple(notes))


def _other_selection(session: Session, traced: TracedSelection) -> Selection | None:
    """The side that the address names; without one, no intervention, or the run's first checkpoint."""
    here = traced.selection
    run, checkpoint = here.other_run or here.run, here.other_checkpoint
    other = replace(here.at_model(), run=run)
    if not (here.other_run or here.other_checkpoint or here.other_source):
        if here.interventions:
            return _reading(replace(other, interventions=()), traced.example)
        known, _ = listed_checkpoints(traced.run)
        if len(known) < 2:
            return None
        checkpoint = known[0].name if known[0].path != traced.checkpoint else known[-1].name
    same_run = choose_run(session.runs, run, [])[1] == traced.run
    other = replace(other, checkpoint=checkpoint or (here.checkpoint if same_run else ""))
    if here.other_source and here.other_source != traced.example.source:
        mode = here.mode if here.mode != "forced" else "beam"
        return replace(
            other, source=here.other_source, target="" if traced.explored.translates else here.target, mode=mode
        )
    return _reading(other, traced.example)


def _reading(other: Selection, example: Example) -> Selection:
    """``other``, reading the same text: also the target that this side translates or reads."""
    if not example.translated or not example.target.strip():
        return other
    return replace(other, mode="forced", target=example.target)


def _form(session: Session, here: Selection, other: Selection | None) -> OtherSide:
    name, run = choose_run(session.runs, here.other_run or here.run, [])
    checkpoints, used = listed_checkpoints(run)
    return OtherSide(
        tuple((one.name, one.label) for one in session.runs.values()) if len(session.runs) > 1 else (),
        name or run.name,
        tuple(checkpoints),
        (other.checkpoint if other else "") or used,
        here.other_source,
        replace(here, other_run="", other_checkpoint="", other_source="").address,
    )


def _names(first: TracedSelection, second: TracedSelection) -> tuple[str, str]:
    """Names that tell the two sides apart."""
    names: list[list[str]] = [[], []]
    for side, parts in zip((first, second), names, strict=True):
        if first.run != second.run:
            parts.append(side.run.name)
        if first.checkpoint != second.checkpoint and _step(first) != _step(second):
            parts.append(_step(side))
        if first.example.source != second.example.source:
            parts.append(f"“{side.example.source}”")
        if first.selection.interventions != second.selection.interventions:
            parts.append(kinds_of(side) or "no intervention")
    return ", ".join(names[0]) or "the other side", ", ".join(names[1]) or "this view"


def _step(side: TracedSelection) -> str:
    name = side.checkpoint.name
    return f"step {step_of(side.checkpoint):,}" if name.removeprefix("step_").isdigit() else name
