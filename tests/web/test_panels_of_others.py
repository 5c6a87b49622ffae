"""Panels of every kind of model: of texts, of images and of series."""

import re

import pytest

from explain.small_examples import EXAMPLES
from glassformer.explain.example import Example
from glassformer.web.explorer.page import render_page
from glassformer.web.explorer.panels.cell import cell_of
from glassformer.web.explorer.panels.chain import chains_of
from glassformer.web.explorer.panels.heads import head_rows
from glassformer.web.explorer.panels.matrix import table_of
from glassformer.web.explorer.panels.model_map import map_of
from glassformer.web.explorer.panels.output import output_of
from glassformer.web.explorer.panels.sentence import sentence_of
from glassformer.web.explorer.panels.timeline import timeline_of
from glassformer.web.explorer.panels.tour import tour_of
from glassformer.web.explorer.places import grid_axes, resolve_selection, select, tensor_of
from glassformer.web.explorer.selection import Selection, parse_address
from glassformer.web.explorer.session import Session
from glassformer.web.settings import WebSettings
from tiny_tasks import SENTENCES, made

TEXTS = {
    "language": "the old cat",
    "masked": "the [MASK] cat",
    "classification": "the old cat",
    "tagging": "the old cat",
}


TAGGED = [text.removesuffix(".") for text in SENTENCES]


@pytest.fixture(scope="module", params=EXAMPLES)
def example(request: pytest.FixtureRequest) -> Example:
    return EXAMPLES[request.param]()


def test_first_view_of_every_kind(example: Example) -> None:
    notes: list[str] = []
    selection = resolve_selection(Selection(), example, notes)
    assert notes == []
    assert len(map_of(example, selection).boxes) >= 4
    view = sentence_of(example, selection)
    assert view.lines
    assert len(timeline_of(example, selection).steps) >= 2
    assert head_rows(example, selection)
    output = output_of(example, selection)
    assert (output is None) == (example.task == "forecasting")
    if output is None:
        return
    assert sum(one.probability for one in output.candidates) <= 1 + 1e-6


def test_boxes_of_the_map_lead_somewhere(example: Example) -> None:
    selection = resolve_selection(Selection(), example, [])
    for box in map_of(example, selection).boxes:
        notes: list[str] = []
        chosen = resolve_selection(parse_address(box.address)[0], example, notes)
        assert notes == [], box.hint
        if chosen.stage:
            assert table_of(example, chosen).passed
        else:
            chains = chains_of(example, chosen)
            assert any(chain.cards for chain in chains), box.hint
            assert all(card.check != "failed" for chain in chains for card in chain.cards)


def test_stops_of_the_tour_lead_somewhere(example: Example) -> None:
    selection = resolve_selection(Selection(), example, [])
    stops = tour_of(example, selection)
    assert len(stops) >= 5
    for stop in stops:
        notes: list[str] = []
        chosen = resolve_selection(parse_address(stop.address)[0], example, notes)
        assert notes == [], stop.title
        assert stop.passed, stop.title
        assert chosen.part
        assert chains_of(example, chosen), stop.title


def test_every_tensor_has_a_table_and_its_last_number_a_formula(example: Example) -> None:
    base = resolve_selection(Selection(), example, [])
    for name in example.trace:
        chosen = resolve_selection(select(base, example, name), example, [])
        assert tensor_of(chosen) == name
        table = table_of(example, chosen)
        assert table.passed, name
        sizes = [
            int(example.trace[name].shape[example.trace.axes(name).index(axis)]) for axis in grid_axes(example, name)
        ]
        last = dict(zip(grid_axes(example, name), (size - 1 for size in sizes), strict=True))
        moved = resolve_selection(select(base, example, name, {"head": 0, **last}), example, [])
        cell = cell_of(example, moved)
        assert cell.passed, name
        index = (0,) * (example.trace[name].ndim - len(sizes)) + tuple(size - 1 for size in sizes)
        assert cell.value == float(example.trace[name][index])


def test_operands_lead_to_the_numbers_that_they_show(example: Example) -> None:
    base = resolve_selection(Selection(), example, [])
    followed = 0
    for name in example.trace:
        axes = grid_axes(example, name)
        moved = resolve_selection(select(base, example, name, {"head": 0, **dict.fromkeys(axes, 0)}), example, [])
        for term in cell_of(example, moved).terms[:2]:
            for operand in term.operands:
                if operand.address:
                    target = resolve_selection(parse_address(operand.address)[0], example, [])
                    assert repr(cell_of(example, target).value) == operand.value, name
                    followed += 1
    assert followed > 20


@pytest.mark.parametrize("task", TEXTS)
def test_page_of_a_run_of_every_task_of_texts(task: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    session = Session(made(tmp_path_factory, task).run, WebSettings())
    selection = Selection(source=TEXTS[task])
    example = session.examine(selection, []).example
    page = render_page(session, selection.address)
    assert page.status == 200
    assert 'name="target"' not in page.html
    for name in list(example.trace)[::5]:
        page = render_page(session, select(selection, example, name).address)
        assert page.status == 200
        assert "✗" not in page.html, name


@pytest.mark.parametrize("task", [one for one in TEXTS if one != "language"])  # which has only a share of its text
def test_first_text_is_one_of_the_validation_data_that_the_model_can_read(
    task: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    session = Session(made(tmp_path_factory, task).run, WebSettings())
    assert render_page(session, "").status == 200
    source = session.examine(Selection(), []).selection.source
    text = re.escape(source).replace(re.escape("[MASK]"), "[a-z]+")
    assert any(re.fullmatch(text, sentence) for sentence in TAGGED + SENTENCES), source


def test_pair_that_is_too_long_is_refused_with_its_length(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    session = Session(made(tmp_path_factory, "classification").run, WebSettings())
    for count, status in ((8, 200), (9, 422)):  # [CLS] five words [SEP], so many words, [SEP]
        page = render_page(session, f"?source=the+dog+runs+the+dog&target={'+'.join(['dog'] * count)}")
        assert page.status == status
    assert "he text has 17 tokens; this page shows at most 16" in page.html
    session = Session(made(tmp_path_factory, "masked").run, WebSettings())
    assert render_page(session, f"?source={'+'.join(['[MASK]'] * 12)}").status == 200
