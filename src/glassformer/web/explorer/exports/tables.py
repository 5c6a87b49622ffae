"""Exports of the panels that are lists: the beam tree, heads off, the tour, the steps, the map."""

import numpy as np
import torch

from glassformer.errors import DataError
from glassformer.explain.analysis.interventions import attentions
from glassformer.explain.figures.view import View
from glassformer.explain.matrix import Axis, Label, Matrix, Scale
from glassformer.web.explorer.exports.content import (
    EVERY_FORMAT,
    PICTURES,
    ExportContent,
    ExportTable,
    NamedArray,
    PanelDrawing,
    columns_of,
    fixed_export,
)
from glassformer.web.explorer.models import ExploredTranslator
from glassformer.web.explorer.panels.beam_tree import BOX, HEIGHT, view_of
from glassformer.web.explorer.panels.before_after import PROBABILITIES, kinds_of
from glassformer.web.explorer.panels.lab import MAX_HEADS, ablation_of, predicted_step
from glassformer.web.explorer.panels.model_map import map_of
from glassformer.web.explorer.panels.patch_grid import patch_panel_of
from glassformer.web.explorer.panels.timeline import probability_of
from glassformer.web.explorer.panels.tour import tour_of
from glassformer.web.explorer.places import labels_of, steps_of
from glassformer.web.explorer.session import Session
from glassformer.web.explorer.traced import TracedSelection

LISTED = 40
"""Words of a picture."""
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
    """The change of the log-probability without each head: of the target, or of the selected word."""
    known = attentions(traced.original.model)
    if sum(attention.n_heads for attention in known.values()) > MAX_HEADS:
        raise DataError(f"the model has more than {MAX_HEADS} heads, and each is switched off once; use Python")
    ablation = ablation_of(traced.original)
    step = predicted_step(traced.original, traced.selection)
    measured = -ablation.loss_change if step is None else ablation.change[:, :, 0, step]
    changes = measured.double().cpu().numpy()
    largest = float(np.abs(changes).max())
    short = (path.replace(".layers.", " ").removesuffix("_attention").replace(".", " ") for path in ablation.attentions)
    rows = Axis.of("stack, layer, attention", short)
    columns = Axis.of("head", map(str, range(changes.shape[1])))
    title = "change of the log-probability without each head"
    title += "" if step is None else f", at step {step}"
    scale = Scale("nats a token" if step is None else "nats", -largest, largest)
    of = "-ablation.loss_change" if step is None else f"ablation.change[:, :, 0, {step}]"
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
            "ablation = head_ablation(example.model, Inputs.of(example), predicted)",
            f"values = {of}  # attention × head",
            "print(values)",
        ),
    )


def _patches(session: Session, traced: TracedSelection) -> ExportContent:
    """The effect of each activation of the donor, put in place alone."""
    grid = patch_panel_of(traced, "").grid
    if grid is None or not grid.rows:
        raise DataError((grid and grid.message) or "there is no second sentence; give one")
    every = np.array([[cell.value for cell in row.cells] for row in grid.rows])
    known = np.flatnonzero(np.isfinite(every).all(0))  # a shorter donor has fewer positions
    labels = (*grid.columns, Label("all"))
    values, columns = every[:, known], Axis(grid.axis, tuple(labels[place] for place in known))
    title = "effects of patches, normalized logit difference"
    matrix = Matrix(values, Axis.of("activation", (row.title for row in grid.rows)), columns, "", Scale.signed(values))
    return ExportContent(
        name="patches",
        title=title,
        numbers=View("patches", title, [matrix]),
        arrays={"effect": NamedArray(values, ("activation", "position"))},
    )


def _before_after(session: Session, traced: TracedSelection) -> ExportContent:
    """The distribution of the next word without and with the interventions."""
    if not traced.interventions:
        raise DataError("there is no intervention; switch a head off first")
    step = traced.selection.step or 0
    before, after = (one.trace[PROBABILITIES][0, step].double().cpu() for one in (traced.original, traced.example))
    order = torch.maximum(before, after).argsort(descending=True, stable=True).tolist()
    words = labels_of(traced.original, PROBABILITIES, "vocab")[1]
    values = torch.stack([before[order], after[order]], 1).numpy()
    title = f"next word at step {step}, before and after {kinds_of(traced)}"
    columns, scale = Axis.of("", ["before", "after"]), Scale("probability", kind="weights")

    def view(count: int) -> View:
        rows = Axis("word", tuple(words[index] for index in order[:count]))
        return View("before_after", title, [Matrix(values[:count], rows, columns, "", scale)])

    return ExportContent(
        name=f"before_after.step{step}",
        title=title,
        numbers=view(len(order)),
        listed=ExportTable(
            ("word", "before", "after"),
            tuple((words[index].text, *row) for index, row in zip(order[:LISTED], values.tolist())),
        ),
        picture=view(LISTED),
        arrays={"probability": NamedArray(values, ("word", "side")), "word": NamedArray(np.array(order), ("word",))},
    )


def _tour(session: Session, traced: TracedSelection) -> ExportContent:
    """The steps with their formulas and checks."""
    rows = tuple(
        (stop.number, stop.title, stop.what, stop.formula, stop.reference, "; ".join(stop.checks), str(stop.passed))
        for stop in tour_of(traced.example, traced.selection)
    )
    headings = ("step", "title", "what", "formula", "reference", "checks", "passed")
    code = ("values = glassformer.walkthrough(example)", "print(values)")
    drawing = PanelDrawing("drawn_tour.svg", {"tour": tour_of(traced.example, traced.selection)})
    return ExportContent(name="tour", title="Tour", numbers=ExportTable(headings, rows), drawing=drawing, code=code)


def _timeline(session: Session, traced: TracedSelection) -> ExportContent:
    """The tokens of the steps, with the probability that the model gives each."""
    labels = steps_of(traced.example)
    values = [probability_of(traced.example, number) for number in range(len(labels))]
    rows = tuple(
        (number, label.text, "" if value is None else value)
        for number, (label, value) in enumerate(zip(labels, values, strict=True))
    )
    known = np.array([[np.nan if value is None else value for value in values]])
    drawn = Matrix(known, Axis.of("", ["probability"]), Axis("step", labels), "", Scale("probability", kind="weights"))
    return ExportContent(
        name="steps",
        title="Steps",
        numbers=ExportTable(("step", "token", "probability"), rows),
        picture=View("steps", "probability of each step", [drawn]),
    )


def _map(session: Session, traced: TracedSelection) -> ExportContent:
    """Figure 1, drawn to this model."""
    drawing = PanelDrawing("map.html", {"map": map_of(traced.example, traced.selection), "model_line": ""}, "map")
    return ExportContent(name="model", title="Figure 1 of the paper, drawn to this model", drawing=drawing)


def _report(session: Session, traced: TracedSelection) -> ExportContent:
    """The offline report, which its format writes from the example."""
    return ExportContent(name="report", title="Offline report")


BEAM = fixed_export("The beam search", EVERY_FORMAT, _beam)
HEADS_OFF = fixed_export("The change without each head", EVERY_FORMAT, _heads_off)
TOUR = fixed_export("The steps of the tour", (*PICTURES, "csv", "tex", "py"), _tour)
TIMELINE = fixed_export("The tokens and their probabilities", (*PICTURES, "csv", "tex"), _timeline)
PATCHES = fixed_export("The effects of patches", (*PICTURES, "csv", "tex", "npz"), _patches)
BEFORE_AFTER = fixed_export("Before and after", (*PICTURES, "csv", "tex", "npz"), _before_after)
MAP = fixed_export("Figure 1 of this model", PICTURES, _map)
REPORT = fixed_export("The whole sentence, as an offline report", ("html",), _report)
