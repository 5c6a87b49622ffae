"""Exports of the panels that are lists: the beam tree, heads off, the tour, the steps, the map."""

from collections.abc import Callable

import numpy as np

from glassformer.errors import DataError
from glassformer.explain.analysis.interventions import attentions
from glassformer.explain.figures.view import View
from glassformer.explain.matrix import Axis, Matrix, Scale
from glassformer.web.explorer.exports.content import (
    EVERY_FORMAT,
    PICTURES,
    ExportContent,
    ExportTable,
    NamedArray,
    PanelDrawing,
    PanelExport,
    columns_of,
)
from glassformer.web.explorer.models import ExploredTranslator
from glassformer.web.explorer.panels.beam_tree import BOX, HEIGHT, view_of
from glassformer.web.explorer.panels.lab import MAX_HEADS, ablation_of
from glassformer.web.explorer.panels.model_map import map_of
from glassformer.web.explorer.panels.timeline import probability_of
from glassformer.web.explorer.panels.tour import tour_of
from glassformer.web.explorer.places import steps_of
from glassformer.web.explorer.session import Session
from glassformer.web.explorer.traced import TracedSelection

NODE_NUMBERS = ("step", "rank", "parent", "token", "log_probability", "total")


def _beam(session: Session, traced: TracedSelection) -> ExportContent:
    """Every hypothesis that the search considered."""
    assert isinstance(traced.explored, ExploredTranslator)
    translator, search = traced.explored.translator, session.search(traced)
    panel = view_of(search, translator, traced.example, traced.selection)
    numbers = [(one.step, one.rank, one.parent, one.tokens[-1], one.log_prob, one.total) for one in search.nodes]
    tokens, end = translator.tokenizers.target, translator.symbols.end
    rows = tuple(
        (*row, tokens.tokens([node.tokens[-1]])[0], tokens.decode([i for i in node.tokens if i != end]), node.state)
        for row, node in zip(numbers, search.nodes, strict=True)
    )
    size = search.beam_size
    drawn = {"beam": panel, "selection": traced.selection, "box_width": BOX, "box_height": HEIGHT}
    return ExportContent(
        name="beam_search",
        title="Beam search",
        numbers=ExportTable((*NODE_NUMBERS, "token_text", "hypothesis", "outcome"), rows),
        drawing=PanelDrawing("beam.html", drawn, "beam beam-scroll"),
        arrays=columns_of(numbers, NODE_NUMBERS),
        imports=("from glassformer.taps import record",),
        code=(
            'with record(translator.models[0], keep="candidate_*") as recorded:',
            f"    found = translator.hypotheses([example.source], beam_size={size}, n_best={size}, sample=False)[0]",
            "# totals of the candidates of each step; −inf where there is none",
            'values = [step[0] for step in recorded.all("candidate_scores")]',
            "print(values)",
        ),
    )


def _heads_off(session: Session, traced: TracedSelection) -> ExportContent:
    """The change of the target's log-probability without each head."""
    known = attentions(traced.original.model)
    if sum(attention.n_heads for attention in known.values()) > MAX_HEADS:
        raise DataError(f"the model has more than {MAX_HEADS} heads, and each is switched off once; use Python")
    ablation = ablation_of(traced.original)
    changes = (-ablation.loss_change).double().cpu().numpy()
    largest = float(np.abs(changes).max())
    short = (path.replace(".layers.", " ").removesuffix("_attention").replace(".", " ") for path in ablation.attentions)
    rows = Axis.of("stack, layer, attention", short)
    columns = Axis.of("head", map(str, range(changes.shape[1])))
    title = "change of the log-probability without each head"
    scale = Scale("nats a token", -largest, largest)
    return ExportContent(
        name="heads_off",
        title=title,
        numbers=View("heads_off", title, [Matrix(changes, rows, columns, "", scale)]),
        arrays={"log_probability_change": NamedArray(changes, ("attention", "head"))},
        imports=(
            "import torch",
            "from glassformer.explain.analysis.heads import head_ablation",
            "from glassformer.explain.analysis.interventions import Inputs",
        ),
        code=(
            "predicted = torch.tensor([example.predicted_ids])",
            "values = -head_ablation(example.model, Inputs.of(example), predicted).loss_change  # attention × head",
            "print(values)",
        ),
    )


def _tour(session: Session, traced: TracedSelection) -> ExportContent:
    """The steps with their formulas and checks."""
    rows = tuple(
        (stop.number, stop.title, stop.what, stop.formula, stop.reference, "; ".join(stop.checks), str(stop.passed))
        for stop in tour_of(traced.example, traced.selection)
    )
    headings = ("step", "title", "what", "formula", "reference", "checks", "passed")
    code = ("values = glassformer.walkthrough(example)", "print(values)")
    return ExportContent(name="tour", title="Tour", numbers=ExportTable(headings, rows), code=code)


def _timeline(session: Session, traced: TracedSelection) -> ExportContent:
    """The tokens of the steps, with the probability that the model gives each."""
    labels = steps_of(traced.example)
    values = [probability_of(traced.example, number) for number in range(len(labels))]
    rows = tuple(
        (number, label.text, "" if value is None else value)
        for number, (label, value) in enumerate(zip(labels, values, strict=True))
    )
    return ExportContent(name="steps", title="Steps", numbers=ExportTable(("step", "token", "probability"), rows))


def _map(session: Session, traced: TracedSelection) -> ExportContent:
    """Figure 1, drawn to this model."""
    drawing = PanelDrawing("map.html", {"map": map_of(traced.example, traced.selection), "model_line": ""}, "map")
    return ExportContent(name="model", title="Figure 1 of the paper, drawn to this model", drawing=drawing)


def _report(session: Session, traced: TracedSelection) -> ExportContent:
    """The offline report, which its format writes from the example."""
    return ExportContent(name="report", title="Offline report")


def _fixed(
    title: str, formats: tuple[str, ...], content: Callable[[Session, TracedSelection], ExportContent]
) -> PanelExport:
    return PanelExport(lambda example, selection: title, formats, content)


BEAM = _fixed("The beam search", EVERY_FORMAT, _beam)
HEADS_OFF = _fixed("The change without each head", EVERY_FORMAT, _heads_off)
TOUR = _fixed("The steps of the tour", ("csv", "tex", "py"), _tour)
TIMELINE = _fixed("The tokens and their probabilities", ("csv", "tex"), _timeline)
MAP = _fixed("Figure 1 of this model", PICTURES, _map)
REPORT = _fixed("The whole sentence, as an offline report", ("html",), _report)
