"""A request for the atlas of heads: the sentences of an address, and the job that measures them."""

from dataclasses import replace

from glassformer.errors import DataError
from glassformer.web.explorer.atlas_job import AtlasJob
from glassformer.web.explorer.models import ExploredText
from glassformer.web.explorer.panels.atlas import AtlasState, AtlasView, atlas_of
from glassformer.web.explorer.run_text import RunSentence
from glassformer.web.explorer.selection import Selection, parse_address
from glassformer.web.explorer.session import Session
from glassformer.web.explorer.traced import TracedSelection

USUAL_SENTENCES, MAX_SENTENCES = 20, 200
SEPARATOR = "|||"
"""Separator of a sentence and its translation, as aligners write it."""


def view_of_atlas(session: Session, traced: TracedSelection) -> AtlasView:
    """The panel of the job of an address. A job begins, or goes on, when it is asked for."""
    count = _count(traced.selection, traced.notes)
    sentences, origin = _sentences(session, traced, count)
    job = session.atlas(traced.explored, sentences)
    state = AtlasState(
        job.state, job.done, len(job.sentences), job.resting, tuple(job.skipped), origin, job.atlas.aligned
    )
    selection = replace(traced.selection, sentences=count)
    return atlas_of(traced.example.model, job.atlas.records(), state, selection, traced.notes)


def control_atlas(session: Session, query: str, action: str) -> None:
    """``cancel`` or ``resume`` the job of an address. ``DataError`` for another action."""
    selection, notes = parse_address(query)
    traced = session.examine(selection, notes)
    if traced.explored.field is not None:
        raise DataError("a model of images or series has no atlas; choose a run that reads texts")
    sentences, _ = _sentences(session, traced, _count(traced.selection, notes))
    actions = {"cancel": AtlasJob.cancel, "resume": AtlasJob.resume}
    if action not in actions:
        raise DataError(f"{action[:40]!r} cannot be done to a job; choose cancel or resume")
    actions[action](session.atlas(traced.explored, sentences))


def _count(selection: Selection, notes: list[str]) -> int:
    """Number of sentences, from 1 to ``MAX_SENTENCES``."""
    if selection.sentences is None:
        return USUAL_SENTENCES
    count = min(max(selection.sentences, 1), MAX_SENTENCES)
    if count != selection.sentences:
        notes.append(f"n={selection.sentences:,} is outside 1 to {MAX_SENTENCES}; this is n={count}.")
    return count


def _sentences(session: Session, traced: TracedSelection, count: int) -> tuple[tuple[RunSentence, ...], str]:
    """The sentences of the address, else those of the run's validation text, else the sentence of the page."""
    translates = traced.explored.translates
    if traced.selection.texts.strip():
        lines = [line.strip() for line in traced.selection.texts.splitlines() if line.strip()]
        found = [_sentence(line, translates) for line in lines]
        return tuple(one for one in found if one.source)[:count] or _own(traced), "the field below"
    task = traced.explored.run.task if isinstance(traced.explored, ExploredText) else "translation"
    found = session.texts[traced.run.name].validation(task, count)
    if found:
        return tuple(found), "the run's validation text"
    return _own(traced), "this page, since the run has no validation text here"


def _own(traced: TracedSelection) -> tuple[RunSentence, ...]:
    return (RunSentence(traced.example.source, traced.example.target if traced.explored.translates else ""),)


def _sentence(line: str, translates: bool) -> RunSentence:
    """``a dog ||| ein Hund``; without the second part the model translates."""
    if not translates:
        return RunSentence(line)
    source, _, target = (part.strip() for part in line.partition(SEPARATOR))
    return RunSentence(source, target)
