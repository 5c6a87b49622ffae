"""The page of an address: panels chosen by the level of zoom, written by the templates."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from textwrap import wrap
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from jinja2 import Environment, PackageLoader, StrictUndefined

from glassformer.errors import DataError, GlassformerError
from glassformer.explain.analysis.interventions import Off
from glassformer.explain.example import Example
from glassformer.explain.page.model_line import model_line
from glassformer.explain.page.wording import direction, equation, token
from glassformer.explain.walkthrough.step import legend
from glassformer.layers.attention import MultiHeadAttention
from glassformer.web.explorer.exports.formats import FORMATS, ExportedFile, ExportRequest, write_export
from glassformer.web.explorer.exports.menu import PANEL, menus_of, panel_exports
from glassformer.web.explorer.interventions import HeadOff, Intervention
from glassformer.web.explorer.panels import curve
from glassformer.web.explorer.panels.beam_tree import BOX, HEIGHT
from glassformer.web.explorer.panels.cell import cell_of
from glassformer.web.explorer.panels.chain import chains_of
from glassformer.web.explorer.panels.free_running import free_running_of
from glassformer.web.explorer.panels.heads import head_rows
from glassformer.web.explorer.panels.matrix import table_of
from glassformer.web.explorer.panels.model_map import map_of
from glassformer.web.explorer.panels.output import output_of
from glassformer.web.explorer.panels.patch_grid import resolve_grid
from glassformer.web.explorer.panels.position_facts import position_facts_of
from glassformer.web.explorer.panels.questions import questions_of_head, questions_of_word
from glassformer.web.explorer.panels.row_editor import row_editor_of
from glassformer.web.explorer.panels.sentence import WIDTH
from glassformer.web.explorer.panels.timeline import timeline_of
from glassformer.web.explorer.panels.tour import strip_of
from glassformer.web.explorer.panels.wording import module_summary, module_title, tensor_text
from glassformer.web.explorer.places import resolve_selection, tensor_of
from glassformer.web.explorer.runs import choose_run, listed_checkpoints
from glassformer.web.explorer.selection import MODES, Selection, parse_address
from glassformer.web.explorer.session import Session
from glassformer.web.explorer.traced import TracedSelection
from glassformer.web.explorer.views import FIRST, VIEWS, input_panel, views_of


@dataclass(frozen=True)
class ExplorerPage:
    """A page of HTML, and its HTTP status."""

    html: str
    status: int = 200


class Tab(NamedTuple):
    """A view of the whole model."""

    text: str
    address: str
    current: bool


class Chip(NamedTuple):
    """An intervention, and the address of the view without it; of a head that is off also the other replacement."""

    text: str
    address: str
    other: str
    other_address: str


class Crumb(NamedTuple):
    """A level above the view, or the view itself."""

    text: str
    address: str


def render_page(session: Session, query: str, complete: bool = True) -> ExplorerPage:
    """The page of an address. An error of the user is a page too, with status 422.

    If it need not be ``complete``, analyses that take long are left to a second answer. ``ViewInterruptedError`` if
    such an analysis gave way to another view.
    """
    selection, notes = parse_address(query)
    try:
        traced = replace(_resolve(session, selection, notes), complete=complete)
        selection = traced.selection
        if complete:
            traced.give_way()
        with without_warnings():
            panels = _panels(session, traced)
    except GlassformerError as error:
        values = {**_nothing(), "error": str(error), "output_text": selection.target}
        return ExplorerPage(_write(session, selection, notes, values), 422)
    translates = traced.explored.translates
    values = {**panels, "error": "", "output_text": traced.example.target if translates else ""}
    return ExplorerPage(_write(session, selection, notes, values))


def export_panel(session: Session, query: str, name: str) -> ExportedFile:
    """The file of a panel of an address, in the format ``name``. ``DataError`` for one that the view does not have."""
    traced = _resolve(session, parse_address(query)[0], [])
    key = dict(parse_qsl(query)).get(PANEL, "stage")
    export = panel_exports(traced.example, traced.selection).get(key)
    if export is None or name not in export.formats or name not in FORMATS:
        raise DataError(f"this view has no panel {key[:40]!r} in the format {name[:40]!r}; choose one of its menus")
    with without_warnings():
        request = ExportRequest(export.content(session, traced), traced, environment())
    return write_export(request, traced.run.name, name)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Drop the warnings of a panel's own analyses: they name words of the text, and the view has them as notes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _resolve(session: Session, selection: Selection, notes: list[str]) -> TracedSelection:
    """The trace of a selection, and the nearest view that it has."""
    traced = session.examine(selection, notes)
    chosen = resolve_selection(_resolve_view(traced.selection, traced.example, notes), traced.example, notes)
    return replace(traced, selection=chosen)


def _resolve_view(selection: Selection, example: Example, notes: list[str]) -> Selection:
    if not selection.panel or selection.panel in views_of(example):
        return resolve_grid(selection, example, notes) if selection.panel == "lab" else selection
    notes.append(f"There is no panel {selection.panel[:40]!r} here; this is the whole model.")
    return replace(selection, panel="")


def _write(session: Session, selection: Selection, notes: list[str], values: dict[str, Any]) -> str:
    template = environment().get_template("page.html")
    run = choose_run(session.runs, selection.run, [])[1]
    checkpoints, used = listed_checkpoints(run)
    return template.render(
        run=run.name,
        runs=list(session.runs.values()),
        checkpoints=checkpoints,
        used=used,
        modes=MODES,
        selection=selection,
        notes=notes,
        level=selection.level,
        above=selection.above,
        replace=replace,
        line_width=WIDTH,
        box_width=BOX,
        box_height=HEIGHT,
        curve_width=curve.WIDTH,
        curve_height=curve.HEIGHT,
        curve_band=curve.BAND,
        **values,
    )


def _nothing() -> dict[str, Any]:
    """Panels of a page with an error."""
    names = (
        "example",
        "map",
        "output",
        "timeline",
        "free_running",
        "strip",
        "facts",
        "sentence",
        "image",
        "series",
        "table",
        "editor",
        "cell",
        "view",
        "field",
    )
    texts = {"title": "", "summary": "", "model_line": "", "legend": ""}
    return {
        **dict.fromkeys(names),
        **texts,
        "translates": True,
        "crumbs": [],
        "tabs": [],
        "chips": [],
        "exports": {},
        "heads": [],
        "word_questions": [],
        "head_questions": [],
        "chains": [],
    }


def _panels(session: Session, traced: TracedSelection) -> dict[str, Any]:
    """Every panel of the view."""
    example, selection = traced.example, traced.selection
    level, values = selection.level, _nothing()
    module: Any = example.model.get_submodule(selection.path)
    attends = isinstance(module, MultiHeadAttention)
    views = views_of(example)
    if selection.panel:
        values["view"] = f"{selection.panel}.html"
        values[selection.panel] = views[selection.panel].panel(session, traced)
    elif level == "model":
        values |= {**input_panel(traced), "heads": head_rows(example, selection)}
    elif level in ("layer", "head"):
        values["chains"] = chains_of(example, selection)
        values["facts"] = position_facts_of(example, selection)
        if attends:
            values["heads"] = head_rows(example, selection, selection.path)
            values |= input_panel(traced, selection.path, selection.head)
    else:
        values["table"] = table_of(example, selection)
        values["cell"] = cell_of(example, selection) if level == "cell" else None
        values["editor"] = row_editor_of(traced)
    values |= {
        "tabs": _tabs(example, selection) if level == "model" else [],
        "chips": [_chip(one, traced) for one in traced.interventions],
        "example": example,
        "translates": example.translated,
        "field": traced.explored.field,
        "map": map_of(example, selection),
        "output": output_of(example, selection),
        "word_questions": questions_of_word(selection, views),
        "head_questions": questions_of_head(traced, views),
        "timeline": timeline_of(example, selection),
        "free_running": free_running_of(traced),
        "strip": None if selection.panel == "tour" else strip_of(example, selection, traced.notes),
        "model_line": model_line(example.model),
        "legend": legend([label.text for side in example.sides for label in side.labels]),
        "crumbs": _crumbs(selection),
        "exports": menus_of(example, selection),
        "title": _title(example, selection),
        "summary": _summary(example, selection),
    }
    return values


def _tabs(example: Example, selection: Selection) -> list[Tab]:
    """Views of the whole model, that of its attention first."""
    titles = {
        "": FIRST.get(example.task, "Attention"),
        **{name: view.title for name, view in views_of(example).items()},
    }
    return [
        Tab(text, (replace(selection, panel=name) if name else selection.at_model()).address, name == selection.panel)
        for name, text in titles.items()
    ]


def _chip(one: Intervention, traced: TracedSelection) -> Chip:
    rest = tuple(other.text for other in traced.interventions if other != one)
    removed = replace(traced.selection, interventions=rest).address
    if not isinstance(one, HeadOff):
        return Chip(one.title, removed, "", "")
    by: Off = "mean" if one.by == "zero" else "zero"
    texts = tuple(replace(one, by=by).text if other == one else other.text for other in traced.interventions)
    return Chip(one.title, removed, f"by {by}", replace(traced.selection, interventions=texts).address)


def _crumbs(selection: Selection) -> list[Crumb]:
    """The way from the whole model to this view."""
    found: list[Crumb] = []
    current: Selection | None = selection
    while current is not None:
        found.append(Crumb(_crumb_text(current), current.address))
        current = current.above
        if current is not None and current.level == "layer" and selection.layer is not None and current.layer is None:
            current = current.at_module(selection.part)
    return found[::-1]


def _crumb_text(selection: Selection) -> str:
    if selection.level == "model":
        return VIEWS[selection.panel].title.lower() if selection.panel else "model"
    if selection.level == "cell":
        return f"[{selection.row}{'' if selection.column is None else f', {selection.column}'}]"
    if selection.level == "matrix":
        return selection.stage.replace("_", " ")
    if selection.head is not None:
        return f"head {selection.head}"
    if selection.sublayer:
        return selection.sublayer.replace("_", " ")
    return selection.part.replace("_", " ") + ("" if selection.layer is None else f" layer {selection.layer}")


def _title(example: Example, selection: Selection) -> str:
    if selection.level == "model":
        return f"{example.source} {'→' if example.translated else example.relation} {example.output}"
    if selection.stage:
        text = tensor_text(selection.stage, selection.path, example.model.get_submodule(selection.path))
        return text.meaning[:1].upper() + text.meaning[1:]
    head = "" if selection.head is None else f" · head {selection.head}"
    return module_title(selection.part, selection.layer, selection.sublayer, _is_pre(example, selection)) + head


def _summary(example: Example, selection: Selection) -> str:
    if selection.level == "model":
        return ""
    if selection.stage:
        head = f", head {selection.head}" if selection.head is not None else ""
        return f"{tensor_of(selection)}{head}"
    return module_summary(selection.part, selection.sublayer, _is_pre(example, selection))


def _is_pre(example: Example, selection: Selection) -> bool:
    """True for a normalization that precedes its sub-layer."""
    return bool(getattr(example.model.get_submodule(selection.path), "pre", False))


def _sentence(text: str) -> str:
    """An error as a sentence; a path or a setting at its beginning stays as it is."""
    first = text.partition(" ")[0]
    return f"{text[:1].upper() if first.isalpha() else text[:1]}{text[1:].rstrip('.')}."


@cache
def environment() -> Environment:
    """Templates; whatever comes from a text, a tokenizer or an address is escaped."""
    made = Environment(
        loader=PackageLoader("glassformer.web.explorer", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"cut": wrap, "token": token, "equation": equation, "direction": direction, "sentence": _sentence}
    return made
