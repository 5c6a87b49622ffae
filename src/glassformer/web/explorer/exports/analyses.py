"""Exports of the analyses: lens, attribution, alignment, comparison, training, vectors, and atlas."""

from dataclasses import replace

import numpy as np
import torch

from glassformer.alignment.attention import one_head
from glassformer.errors import DataError
from glassformer.explain.analysis.attribution import direct_logit_attribution
from glassformer.explain.analysis.lens import logit_lens
from glassformer.explain.analysis.word_links import example_attention
from glassformer.explain.figures.view import View
from glassformer.explain.matrix import WEIGHTS, Axis, Matrix, Scale
from glassformer.web.explorer.atlas_request import view_of_atlas
from glassformer.web.explorer.exports.content import (
    EVERY_FORMAT,
    PICTURES,
    ExportContent,
    ExportTable,
    NamedArray,
    PanelDrawing,
    arrays_of,
    columns_of,
    fixed_export,
)
from glassformer.web.explorer.learning import training_series
from glassformer.web.explorer.models import ExploredTranslator
from glassformer.web.explorer.other_side import compare_with_other
from glassformer.web.explorer.panels.alignment import chosen_reading, reading_name
from glassformer.web.explorer.panels.attribution import STEPS, attribution_of, part_title, token_attribution
from glassformer.web.explorer.panels.patch_grid import row_title
from glassformer.web.explorer.panels.vectors import vectors_of
from glassformer.web.explorer.places import steps_of
from glassformer.web.explorer.session import Session
from glassformer.web.explorer.traced import TracedSelection

IMPORT_TORCH = "import torch"
READ = (*PICTURES, "csv", "tex", "npz")
"""Formats of a view whose numbers no script of one example gives."""


def _lens(session: Session, traced: TracedSelection) -> ExportContent:
    """The probability of the target after each layer, at each step."""
    example = traced.example
    predicted = torch.tensor([example.predicted_ids])
    lens = logit_lens(example.trace, predicted)
    chances = (
        lens.logits.double().softmax(-1).gather(-1, predicted[None, :, :, None].expand(len(lens.places), -1, -1, 1))
    )
    values, ranks = chances[:, 0, :, 0].cpu().numpy(), lens.rank[:, 0].cpu().numpy()
    layers = Axis.of("layer", map(row_title, lens.places))
    steps = Axis("step", steps_of(example))
    title = "logit lens, probability of the target after each layer"
    scale = Scale("probability", kind="weights")
    return ExportContent(
        name="lens",
        title=title,
        numbers=View("lens", title, [Matrix(values, layers, steps, "", scale)]),
        arrays={name: NamedArray(one, ("layer", "step")) for name, one in (("probability", values), ("rank", ranks))},
        imports=(IMPORT_TORCH, "from glassformer.explain.analysis.lens import logit_lens"),
        code=(
            "values = logit_lens(example.trace, torch.tensor([example.predicted_ids]))",
            "print(values.rank)",
        ),
    )


def _attribution(session: Session, traced: TracedSelection) -> ExportContent:
    """Shares of the tokens that are read, and of the parts of the decoder."""
    example, step = traced.original, traced.selection.step or 0
    token = example.predicted_ids[step]
    shares = token_attribution(traced, step, token)
    parts = direct_logit_attribution(example.trace, step, token)
    sides = [shares.source.tolist(), shares.target.tolist()][-len(example.sides) :]
    pairs = [(label, v) for side, row in zip(example.sides, sides, strict=True) for label, v in zip(side.labels, row)]
    tokens = tuple((f"{label.side} token", label.text, value) for label, value in pairs)
    rest = tuple((part.kind, part_title(part), v) for part, v in zip(parts.parts, parts.contributions.tolist()))
    column = np.array([[value] for _, value in pairs])
    panel = attribution_of(replace(traced, complete=True))
    drawn = [*(panel.tokens.sides if panel.tokens else ()), ("part of the decoder", panel.parts.parts)]
    return ExportContent(
        name=f"attribution.step{step}",
        title=f"what speaks for {panel.word} at {panel.where}",
        numbers=ExportTable(("of", "name", "value"), (*tokens, *rest)),
        drawing=PanelDrawing("drawn_shares.svg", {"groups": drawn}),
        arrays={
            "tokens": NamedArray(column[:, 0], ("token",)),
            "parts": NamedArray(parts.contributions.cpu().numpy(), ("part",)),
        },
        imports=(
            "from glassformer.explain.analysis.attribution import Goal, direct_logit_attribution, integrated_gradients",
            "from glassformer.explain.analysis.interventions import Inputs",
        ),
        code=(
            *_plain_example(traced),
            f"step, token = {step}, {token}",
            f"values = integrated_gradients(example.model, Inputs.of(example), Goal(step, token), {STEPS})",
            "print(values.source, values.target)",
            "print(direct_logit_attribution(example.trace, step, token))",
        ),
    )


def _plain_example(traced: TracedSelection) -> list[str]:
    """A line that gives ``example`` without interventions, which this view leaves out."""
    if not traced.interventions:
        return []
    if traced.explored.translates:
        return ["example = glassformer.examine(translator, example.source, example.target)"]
    return ["example = examine_run(run, ExampleInput(example.source))"]


def _alignment(session: Session, traced: TracedSelection) -> ExportContent:
    """Attention by words of the chosen head and reading."""
    example = traced.example
    attention = example_attention(example)
    if attention is None or not isinstance(traced.explored, ExploredTranslator):
        raise DataError("one of the two texts has no words; give longer texts")
    usual = traced.explored.translator.read_by()
    reading = chosen_reading(traced.selection.reading, attention, usual, [])
    which = "shifted" if reading.shifted else "naive"
    values = one_head(attention.shifted if reading.shifted else attention.naive, reading.layer, reading.head).numpy()
    rows, columns = Axis("target word", example.sides[-1].words), Axis("source word", example.sides[0].words)
    title = f"attention by words, {reading_name(reading)}"
    head = ".mean(0)" if reading.head is None else f"[{reading.head}]"
    return ExportContent(
        name=f"alignment.layer{reading.layer}.{'mean' if reading.head is None else f'head{reading.head}'}.{which}",
        title=title,
        numbers=View("alignment", title, [Matrix(values, rows, columns, "", WEIGHTS)]),
        arrays={"weights": NamedArray(values, ("target_word", "source_word"))},
        imports=("from glassformer.explain.analysis.word_links import example_attention",),
        code=(f"values = example_attention(example).{which}[{reading.layer}]{head}", "print(values)"),
    )


def _comparison(session: Session, traced: TracedSelection) -> ExportContent:
    """The attention of one head on both sides, and its difference."""
    beside = compare_with_other(session, traced)
    if beside.view is None:
        raise DataError(beside.problem or "there is no other side; choose a checkpoint, a run or a sentence")
    maps = beside.view.maps
    title = f"{beside.view.attention}: {beside.view.second} beside {beside.view.first}"
    named = ("first", "second", "difference") if len(maps) > 1 else ("second",)
    matrices = [Matrix(m.matrix.values, m.matrix.rows, m.matrix.columns, m.title, m.matrix.scale) for m in maps]
    return ExportContent(
        name="comparison",
        title=title,
        numbers=View("comparison", title, matrices),
        drawing=PanelDrawing("drawn_maps.svg", {"maps": maps, "scale": beside.view.scale}),
        arrays={name: NamedArray(one.values, ("query", "key")) for name, one in zip(named, matrices, strict=False)},
    )


def _training(session: Session, traced: TracedSelection) -> ExportContent:
    """The measures of a head at each checkpoint; its attention there as the picture."""
    view = training_series(session, traced)
    if view.missing:
        raise DataError(f"{view.missing} checkpoints are still being computed; export the view when it is complete")
    rows = tuple((one.label, *("" if v is None else v for v in one.numbers)) for one in view.rows)
    tiles = [one for one in view.tiles if one.values is not None]
    path = view.title
    sides = [Axis.of(name, labels) for name, labels in view.labels]
    matrices = [
        Matrix(one.values, sides[0], sides[1], one.label)
        for one in tiles
        if one.values is not None and one.values.shape == (len(sides[0]), len(sides[1]))
    ]
    numbers = [[np.nan if v is None else v for v in one.numbers] for one in view.rows]
    return ExportContent(
        name="training",
        title=f"{path}, over the training",
        numbers=ExportTable(("checkpoint", *view.columns), rows),
        picture=View("training", f"{path}, over the training", matrices) if matrices else None,
        arrays=columns_of(numbers, [name.split(",")[0].replace(" ", "_") for name in view.columns]),
    )


def _vectors(session: Session, traced: TracedSelection) -> ExportContent:
    """The vectors of the chosen token, from its row of the embedding matrix on."""
    example = traced.example
    panel = vectors_of(example, traced.selection, [])
    names, position = [row.name for row in panel.rows], panel.place.position or 0
    vectors = []
    for name in names:
        index = {"batch": 0} if "batch" in example.trace.axes(name) else {}
        vectors.append(example.trace.at(name, **index, position=position).double().cpu().numpy())
    values = np.stack(vectors)
    title = f"{panel.place.side} token {position}, {panel.token.plain}, as vectors"
    rows = Axis.of("tensor", (name.rpartition(".")[2] for name in names))
    columns = Axis.of("dimension", map(str, range(values.shape[1])))
    listed = ", ".join(f'"{name}"' for name in names)
    return ExportContent(
        name=f"vectors.{panel.place.side}.token{position}",
        title=title,
        numbers=View("vectors", title, [Matrix(values, rows, columns, "", Scale.signed(values))]),
        arrays=arrays_of(example, names),
        code=(
            f"values = {{name: example.trace[name][..., {position}, :] for name in [{listed}]}}",
            "print(values)",
        ),
    )


def _atlas(session: Session, traced: TracedSelection) -> ExportContent:
    """Measures of every head over the sentences that have been measured so far."""
    view = view_of_atlas(session, traced)
    if not view.rows:
        raise DataError("no sentence has been measured yet; wait for the first one")
    names = [column.title for column in view.columns]
    numbers = [[np.nan if cell.value is None else cell.value for cell in row.cells] for row in view.rows]
    rows = tuple((row.name, *("" if cell.value is None else cell.value for cell in row.cells)) for row in view.rows)
    title = f"heads over {view.state.done} sentences"
    return ExportContent(
        name="atlas",
        title=title,
        numbers=ExportTable(("head", *names), rows),
        drawing=PanelDrawing("drawn_atlas.svg", {"atlas": view}),
        arrays=columns_of(numbers, [column.name for column in view.columns]),
    )


LENS = fixed_export("The logit lens", EVERY_FORMAT, _lens)
ATTRIBUTION = fixed_export("The attribution of this word", EVERY_FORMAT, _attribution)
ALIGNMENT = fixed_export("The attention by words", EVERY_FORMAT, _alignment)
COMPARISON = fixed_export("The comparison", READ, _comparison)
TRAINING = fixed_export("The head over the training", READ, _training)
VECTORS = fixed_export("The vectors of this token", EVERY_FORMAT, _vectors)
ATLAS = fixed_export("The atlas of heads", READ, _atlas)
