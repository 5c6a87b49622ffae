"""Views of the whole model besides that of its attention: a row of one table each."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from glassformer.explain.analysis.interventions import attentions
from glassformer.explain.example import Example
from glassformer.explain.figures.attention import attention_views
from glassformer.web.explorer.arrays import ExploredImages, ExploredSeries
from glassformer.web.explorer.atlas_request import USUAL_SENTENCES, view_of_atlas
from glassformer.web.explorer.exports.analyses import (
    ALIGNMENT,
    ATLAS,
    ATTRIBUTION,
    COMPARISON,
    LENS,
    TRAINING,
    VECTORS,
)
from glassformer.web.explorer.exports.content import PanelExport
from glassformer.web.explorer.exports.tables import BEAM, HEADS_OFF, TOUR
from glassformer.web.explorer.learning import training_series
from glassformer.web.explorer.models import ExploredTranslator
from glassformer.web.explorer.other_side import compare_with_other
from glassformer.web.explorer.panels.alignment import AlignmentView, alignment_of
from glassformer.web.explorer.panels.attribution import AttributionView, attribution_of, has_attribution
from glassformer.web.explorer.panels.beam_tree import BeamView, view_of
from glassformer.web.explorer.panels.curve import Curve, curve_of
from glassformer.web.explorer.panels.lab import LabView, lab_of
from glassformer.web.explorer.panels.lens import LensView, has_lens, lens_of
from glassformer.web.explorer.panels.patches import patches_of
from glassformer.web.explorer.panels.sentence import sentence_of
from glassformer.web.explorer.panels.tour import TourStop, tour_of
from glassformer.web.explorer.panels.vectors import VectorsView, has_vectors, vectors_of
from glassformer.web.explorer.session import Session
from glassformer.web.explorer.traced import TracedSelection


class PageView(NamedTuple):
    """A view: its tab, the examples that have it, and its panel, which the template of the view's name writes.

    ``export`` gives its files; of a view without one the tensors of the trace are exported.
    """

    title: str
    exists: Callable[[Example], bool]
    panel: Callable[[Session, TracedSelection], Any]
    export: PanelExport | None = None


def _tour(session: Session, traced: TracedSelection) -> list[TourStop]:
    return tour_of(traced.example, traced.selection)


def _beam(session: Session, traced: TracedSelection) -> BeamView:
    assert isinstance(traced.explored, ExploredTranslator)
    return view_of(session.search(traced), traced.explored.translator, traced.example, traced.selection)


def _lens(session: Session, traced: TracedSelection) -> LensView:
    return lens_of(traced.example, traced.selection)


def _attribution(session: Session, traced: TracedSelection) -> AttributionView:
    return attribution_of(traced)


def _lab(session: Session, traced: TracedSelection) -> LabView:
    return lab_of(traced, "" if traced.donor is not None else session.suggestion(traced))


def _reads_text(example: Example) -> bool:
    return example.task not in FIRST and bool(attentions(example.model))


def _attends(example: Example) -> bool:
    return any(f"{path}.weights" in example.trace for path in attention_views(example).values())


def _alignment(session: Session, traced: TracedSelection) -> AlignmentView:
    explored, example = traced.explored, traced.example
    assert isinstance(explored, ExploredTranslator)
    run_gold = session.texts[traced.run.name].gold(example.source, example.target)
    view = alignment_of(example, traced.selection, explored.translator.read_by(), run_gold, traced.notes)
    measured = session.texts[traced.run.name].validation("translation", USUAL_SENTENCES)
    if view.scored or view.message or not any(one.gold for one in measured):
        return view
    return replace(view, atlas=replace(traced.selection.at_model(), panel="atlas").address)


def _vectors(session: Session, traced: TracedSelection) -> VectorsView:
    return vectors_of(traced.example, traced.selection, traced.notes)


VIEWS: dict[str, PageView] = {
    "tour": PageView("Tour", lambda example: True, _tour, TOUR),
    "vectors": PageView("Text to vectors", has_vectors, _vectors, VECTORS),
    "beam": PageView("Beam search", lambda example: example.translated, _beam, BEAM),
    "lens": PageView("Logit lens", has_lens, _lens, LENS),
    "attribution": PageView("Attribution", has_attribution, _attribution, ATTRIBUTION),
    "alignment": PageView("Alignment", lambda example: example.translated, _alignment, ALIGNMENT),
    "atlas": PageView("Heads atlas", _reads_text, view_of_atlas, ATLAS),
    "lab": PageView("Lab", has_lens, _lab, HEADS_OFF),
    "compare": PageView("Compare", _attends, compare_with_other, COMPARISON),
    "training": PageView("Over training", _attends, training_series, TRAINING),
}
"""Name in the address and of the template → the view, in the order of the tabs."""


def views_of(example: Example) -> dict[str, PageView]:
    """The views that an example has."""
    return {name: view for name, view in VIEWS.items() if view.exists(example)}


FIRST = {"images": "Image", "forecasting": "Series"}
"""Tab of the first view by task, where it is not the attention of a text."""


def input_panel(traced: TracedSelection, path: str = "", head: int | None = None) -> dict[str, Any]:
    """The input with its attention, by the name of its template: a text, an image, or a series."""
    explored, example, selection = traced.explored, traced.example, traced.selection
    if isinstance(explored, ExploredImages):
        return {"image": patches_of(example, selection, explored.truth(selection), path, head)}
    if isinstance(explored, ExploredSeries):
        assert example.values is not None and example.forecast is not None
        seen, forecast = (explored.restore(selection, one[:, 0]) for one in (example.values, example.forecast))
        curve = Curve(seen, forecast, explored.truth(selection))
        return {"series": curve_of(example, selection, curve, path, head)}
    return {"sentence": sentence_of(example, selection, path, head)}
