"""The lab: patches from a second sentence, edited rows, and the output before and after."""

import math
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest
import torch

from explain.page_reader import Reader
from glassformer import trace
from glassformer.explain.analysis.interventions import Inputs, run
from glassformer.explain.analysis.patching import patch_groups
from glassformer.explain.formula.dataflow import residual_stream
from glassformer.web.explorer.interventions import edits_of
from glassformer.web.explorer.page import render_page
from glassformer.web.explorer.panels.before_after import before_after_of
from glassformer.web.explorer.panels.patch_grid import patch_panel_of
from glassformer.web.explorer.panels.row_editor import row_editor_of
from glassformer.web.explorer.places import resolve_selection
from glassformer.web.explorer.selection import parse_address
from glassformer.web.explorer.session import Session, TracedSelection
from glassformer.web.explorer.traced import ViewInterruptedError
from glassformer.web.settings import WebSettings
from tiny_run import TinyRun

FORCED = {"source": "the old cat sleeps", "target": "le vieux chat dort", "mode": "forced"}
DONOR = {"donor": "the old dog sleeps", "panel": "lab"}
LONG = {
    "source": "the old cat sees the young dog and the cat",
    "target": "le vieux chat voit le jeune chien et le chat",
    "donor": "the old dog sees the young cat and the dog",
}
CROSS = "decoder.layers.1.cross_attention"
SELF = "encoder.layers.0.self_attention"
LOGITS = "output_projection.logits"
KEYS, READ = 12, 10
"""Tokens of the source and of the target."""
FIRST = [1, *[0] * (KEYS - 1)]


@pytest.fixture(scope="module")
def session(tiny: TinyRun) -> Session:
    return Session(tiny.run, WebSettings())


def address(**fields: Any) -> str:
    return f"?{urlencode({**FORCED, **fields}, doseq=True)}"


def examined(session: Session, query: str, notes: list[str] | None = None) -> TracedSelection:
    """The view of an address, as the page resolves it."""
    notes = [] if notes is None else notes
    traced = session.examine(parse_address(query)[0], notes)
    return replace(traced, selection=resolve_selection(traced.selection, traced.example, notes))


def keys_of(traced: TracedSelection, path: str) -> int:
    return int(traced.original.trace[f"{path}.weights"].size(-1))


def row_text(path: str, head: int, query: int, units: list[int]) -> str:
    return f"{path}.{head}.{query}:{'-'.join(map(str, units))}"


# Patches


def test_patch_of_the_sentence_itself_changes_no_bit(session: Session) -> None:
    plain = examined(session, address())
    groups = patch_groups(plain.original.model)
    texts = [f"{name}@{place}" for names in groups.values() for name in names for place in (0, "all")]
    traced = examined(session, address(donor=FORCED["source"], edit=texts))
    assert len(traced.interventions) == len(texts)
    assert traced.example is not plain.example
    for name in plain.example.trace:
        assert torch.equal(traced.example.trace[name], plain.example.trace[name]), name


def test_whole_stream_and_memory_of_the_donor_give_its_logits(session: Session) -> None:
    model = examined(session, address()).original.model
    for name in residual_stream(model, "decoder"):
        traced = examined(session, address(donor=DONOR["donor"], edit=[f"{name}@all", "memory@all"]))
        assert traced.donor is not None
        assert torch.equal(traced.example.trace[LOGITS], traced.donor.trace[LOGITS])
        assert not torch.equal(traced.example.trace[LOGITS], traced.original.trace[LOGITS])
        assert traced.donor.target_ids == traced.original.target_ids


def test_patch_of_one_position_is_the_donors_there_only(session: Session) -> None:
    name = f"{SELF}.result"
    traced = examined(session, address(donor=DONOR["donor"], edit=f"{name}@2"))
    assert traced.donor is not None
    before, after, donor = (one.trace[name][0] for one in (traced.original, traced.example, traced.donor))
    assert torch.equal(after[2], donor[2])
    assert not torch.equal(after[2], before[2])
    assert torch.equal(after[[0, 1, 3]], before[[0, 1, 3]])
    assert traced.interventions[0].title == "encoder layer 0 self-attention, position 2 “d”: patched"


def test_numbers_of_the_grid_are_those_of_edited_runs(session: Session) -> None:
    for group in patch_groups(examined(session, address()).original.model):
        query = address(**DONOR, step=2, grid=group)
        traced = examined(session, query)
        grid = patch_panel_of(traced, "").grid
        assert grid is not None
        assert traced.donor is not None
        original, donor = (one.trace[LOGITS][0, 2].double() for one in (traced.original, traced.donor))
        change = donor.softmax(0) - original.softmax(0)
        rising, falling = int(change.argmax()), int(change.argmin())
        start, end = (float(one[rising] - one[falling]) for one in (original, donor))
        page = Reader(render_page(session, query).html)
        shown = {
            one["data-key"]: float(one["data-value"]) for one in page.having("role", "button") if "data-value" in one
        }
        assert len(shown) == sum(len(row.cells) for row in grid.rows)
        for key, value in shown.items():
            name, _, place = key.removeprefix("patch-").partition("@")
            with trace(traced.original.model, edits={name: replaced_by(traced.donor.trace[name], place)}) as t:
                traced.original.model(*Inputs.of(traced.original).arguments)
            logits = t[LOGITS][0, 2].double()
            expected = (float(logits[rising] - logits[falling]) - start) / (end - start)
            assert value == pytest.approx(expected, abs=1e-4), key
        assert grid.check.startswith("✓ The donor's last layer, all positions, gives the donor's logits exactly")


def replaced_by(donor: torch.Tensor, place: str) -> Any:
    """An edit by hand."""

    def edit(tensor: torch.Tensor) -> torch.Tensor:
        edited = tensor.clone()
        chosen = range(tensor.size(1)) if place == "all" else [int(place)]
        for position in chosen:
            edited[0, position] = donor[0, position]
        return edited

    return edit


def test_cell_of_the_grid_applies_its_patch_and_takes_it_back(session: Session) -> None:
    traced = examined(session, address(**DONOR, step=2))
    grid = patch_panel_of(traced, "").grid
    assert grid is not None
    cell = grid.rows[1].cells[2]
    applied = examined(session, cell.address)
    assert [one.text for one in applied.interventions] == [cell.key]
    again = patch_panel_of(applied, "").grid
    assert again is not None
    assert [one.pressed for one in again.rows[1].cells] == [False, False, True, *[False] * (len(again.columns) - 2)]
    assert again.rows[1].cells[2].value == cell.value  # the grid is that of the sentence without interventions
    assert examined(session, again.rows[1].cells[2].address).interventions == ()


def test_later_steps_do_not_change_earlier_ones(session: Session) -> None:
    grid = patch_panel_of(examined(session, address(**DONOR, step=1, grid="decoder.stream")), "").grid
    assert grid is not None
    values = torch.tensor([[cell.value for cell in row.cells] for row in grid.rows])
    assert values[:, 2:-1].abs().max() < 1e-5
    assert float(values[-1, 1]) == pytest.approx(1, abs=1e-5)
    assert float(values[-1, -1]) == pytest.approx(1, abs=1e-5)


def test_donor_of_another_length_has_the_positions_of_both(session: Session) -> None:
    traced = examined(session, address(panel="lab", donor="the dog"))
    grid = patch_panel_of(traced, "").grid
    assert traced.donor is not None
    assert grid is not None
    shared = len(traced.donor.source_ids)
    assert shared < len(traced.original.source_ids)
    assert f"The donor has {shared} positions" in grid.limit
    assert grid.check == ""
    for row in grid.rows:
        assert [cell.address != "" for cell in row.cells] == [place < shared for place in range(len(row.cells) - 1)] + [
            True
        ]
        assert all(math.isfinite(cell.value) == (cell.address != "") for cell in row.cells)
    assert render_page(session, address(panel="lab", donor="the dog")).status == 200
    longer = examined(session, address(panel="lab", donor=f"{FORCED['source']} and the dog runs", edit="memory@all"))
    assert longer.donor is not None
    kept = longer.original.trace["memory"].size(1)
    assert torch.equal(longer.example.trace["memory"], longer.donor.trace["memory"][:, :kept])


def test_equal_outputs_have_no_grid(session: Session) -> None:
    grid = patch_panel_of(examined(session, address(panel="lab", donor=FORCED["source"])), "").grid
    assert grid is not None
    assert grid.rows == ()
    assert "same output" in grid.message


# Rows of attention


def test_edited_row_is_that_of_the_trace_and_everything_follows(session: Session) -> None:
    plain = examined(session, address())
    units = [0] * keys_of(plain, CROSS)
    units[0], units[2] = 250, 750
    traced = examined(session, address(edit=row_text(CROSS, 1, 2, units)))
    before, after = (one.trace[f"{CROSS}.weights"][0] for one in (traced.original, traced.example))
    expected = torch.tensor(units, dtype=torch.float32) / 1000
    assert torch.equal(after[1, 2], expected)
    assert torch.equal(after[0], before[0])
    assert torch.equal(after[1, [0, 1, 3]], before[1, [0, 1, 3]])
    context = traced.example.trace[f"{CROSS}.context"][0, 1, 2]
    assert torch.allclose(context, expected @ traced.example.trace[f"{CROSS}.v"][0, 1], atol=1e-6)
    assert not torch.equal(traced.example.trace[LOGITS], traced.original.trace[LOGITS])
    assert traced.interventions[0].title.endswith("head 1: row 2 “i” edited")


def test_row_is_divided_by_its_sum(session: Session) -> None:
    count = keys_of(examined(session, address()), CROSS)
    traced = examined(session, address(edit=row_text(CROSS, 0, 1, [3] * count)))
    assert torch.allclose(traced.example.trace[f"{CROSS}.weights"][0, 0, 1], torch.full((count,), 1 / count))


def test_row_of_the_model_itself_changes_no_bit(session: Session) -> None:
    plain = examined(session, address())
    row = plain.original.trace[f"{CROSS}.weights"][0, 1, 2]
    units = [round(1000 * value) for value in row.double().tolist()]
    traced = examined(session, address(edit=row_text(CROSS, 1, 2, units)))
    assert len(traced.interventions) == 1
    assert torch.equal(traced.example.trace[LOGITS], plain.original.trace[LOGITS])
    changed = [*units]
    changed[0], changed[1] = changed[1] + 5, changed[0]
    other = examined(session, address(edit=row_text(CROSS, 1, 2, changed)))
    assert not torch.equal(other.example.trace[LOGITS], plain.original.trace[LOGITS])


def test_editor_shows_the_weights_and_leads_to_their_edits(session: Session) -> None:
    view = {"part": "decoder", "layer": 1, "sublayer": "cross_attention", "head": 1, "stage": "weights", "row": 2}
    traced = examined(session, address(**view, column=0))
    editor = row_editor_of(traced)
    assert editor is not None
    weights = traced.original.trace[f"{CROSS}.weights"][0, 1, 2].tolist()
    assert [bar.units for bar in editor.bars] == [round(1000 * value) for value in weights]
    assert not editor.edited
    assert editor.words == ()
    only = examined(session, editor.bars[3].only)
    assert only.example.trace[f"{CROSS}.weights"][0, 1, 2].tolist() == [float(key == 3) for key in range(len(weights))]
    moved = row_editor_of(only)
    assert moved is not None
    assert moved.edited
    assert [bar.units for bar in moved.bars] == [1000 * (key == 3) for key in range(len(weights))]
    assert [bar.before for bar in moved.bars] == [bar.before for bar in editor.bars]
    assert moved.words
    assert examined(session, moved.base).interventions == ()
    uniform = examined(session, editor.uniform)
    assert torch.allclose(
        uniform.example.trace[f"{CROSS}.weights"][0, 1, 2], torch.full((len(weights),), 1 / len(weights))
    )
    assert parse_address(editor.later)[0].row == 3


def test_mask_stays_in_edited_rows(session: Session) -> None:
    path = "decoder.layers.0.self_attention"
    view = {"part": "decoder", "layer": 0, "sublayer": "self_attention", "head": 0, "stage": "weights", "row": 1}
    editor = row_editor_of(examined(session, address(**view, column=0)))
    assert editor is not None
    assert [bar.allowed for bar in editor.bars] == [True, True, *[False] * (len(editor.bars) - 2)]
    notes: list[str] = []
    traced = examined(session, address(edit=row_text(path, 0, 1, [1] * len(editor.bars))), notes)
    assert traced.example.trace[f"{path}.weights"][0, 0, 1].tolist() == [0.5, 0.5, *[0.0] * (len(editor.bars) - 2)]
    assert "the mask hides" in notes[0]


def test_replaced_numbers_have_no_formula_and_the_others_are_checked(session: Session) -> None:
    units = [1000 * (key == 2) for key in range(keys_of(examined(session, address()), CROSS))]
    edits = [row_text(CROSS, 1, 2, units), f"{SELF}.result@1"]
    views = (
        {"part": "decoder", "layer": 1, "sublayer": "cross_attention", "head": 1, "stage": "weights"},
        {"part": "encoder", "layer": 0, "sublayer": "self_attention", "stage": "result"},
    )
    for view, row in zip(views, (2, 1), strict=True):
        fields = {**view, "donor": DONOR["donor"], "edit": edits}
        table = render_page(session, address(**fields)).html
        assert "✗" not in table
        assert "✓" in Reader(table).text
        replaced = render_page(session, address(**fields, row=row, column=0)).html
        assert "This number was replaced by an intervention" in replaced
        assert "This number was replaced" not in render_page(session, address(**fields, row=0, column=0)).html


# Before and after


@pytest.mark.parametrize(
    ("edit", "kinds"),
    [
        (f"{CROSS}.1:zero", "1 head off"),
        (f"{CROSS}.1:mean", "1 head off"),
        (f"{SELF}.result@2", "1 patch"),
        (row_text(CROSS, 1, 0, FIRST), "1 row edited"),
    ],
)
def test_loss_words_and_output_before_and_after(session: Session, edit: str, kinds: str) -> None:
    traced = examined(session, address(**DONOR, edit=edit, step=1))
    change = before_after_of(traced)
    assert change is not None
    assert change.kinds == kinds
    for text, one in ((change.loss, traced.original), (change.loss_after, traced.example)):
        rows = one.trace["output_projection.log_probabilities"][0].double()
        expected = -sum(float(rows[place, token]) for place, token in enumerate(traced.original.predicted_ids)) / len(
            rows
        )
        assert float(text) == pytest.approx(expected, abs=1e-3)
    before, after = (one.trace["output_projection.probabilities"][0, 1] for one in (traced.original, traced.example))
    assert change.words[0].before_part == pytest.approx(100 * float(before.max()), abs=1e-9) or change.words[
        0
    ].after_part == pytest.approx(100 * float(after.max()), abs=1e-9)
    assert change.output is not None
    assert change.output.before
    text = Reader(render_page(session, address(**DONOR, edit=edit, step=1)).html).text
    assert f"with {kinds}" in text
    assert f"{change.loss} → {change.loss_after} nats a token" in text


def test_translation_under_patches_is_greedy_over_whole_beginnings(session: Session) -> None:
    """By hand: the whole beginning of the target is read at every step, under the edits."""
    traced = examined(session, address(**DONOR, edit=[f"{SELF}.result@2", "decoder.layers.0.cross_attention.0:mean"]))
    change = before_after_of(traced)
    assert change is not None
    assert change.output is not None
    assert traced.donor is not None
    original, translator = traced.original, traced.original.translator
    edits = edits_of(traced.interventions, original, traced.donor.trace)
    ids = [translator.symbols.start]
    while len(ids) <= len(original.source_ids) - 1 + translator.decoding.max_extra:
        inputs = Inputs(Inputs.of(original).source, torch.tensor([ids]))
        best = int(run(original.model, inputs, edits)[0, -1].argmax())
        if best == translator.symbols.end:
            break
        ids.append(best)
    assert change.output.after == translator.tokenizers.target.decode(ids[1:])
    assert change.output.before == translator.translate([original.source], beam_size=1)[0]


def test_long_analyses_follow_in_a_second_answer(tiny: TinyRun, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(tiny.run, WebSettings())
    query = address(**DONOR, edit=f"{CROSS}.1:zero")
    monkeypatch.setattr("glassformer.web.explorer.traced.SMALL", 0)
    first = render_page(session, query, complete=False).html
    assert first.count("data-pending") == 3
    whole = render_page(session, query, complete=True).html
    assert "data-pending" not in whole
    assert render_page(session, query, complete=False).html == whole  # from memory now


# Bad addresses


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ("memory@99", "is outside positions 0 to"),
        ("memory@x", "is outside positions 0 to"),
        ("decoder.layers.9.feed_forward_norm.normed@1", "no activation of this model"),
        ("encoder.layers.0.self_attention.q@1", "no activation of this model"),
        (row_text(CROSS, 0, 1, [0] * KEYS), "has only zeros"),
        (row_text(CROSS, 0, 99, FIRST), "is outside rows 0 to"),
        (row_text(CROSS, 9, 1, FIRST), "is no head of this model"),
        (row_text(CROSS, 0, 1, [1, 2]), "has 2 weights for 12 keys"),
        (row_text("decoder.layers.0.self_attention", 0, 0, [0, *[1] * (READ - 1)]), "has only zeros"),
        (f"{CROSS}.0.1:1-2-", "is no head of this model"),
    ],
)
def test_interventions_that_cannot_be_are_ignored_with_a_note(session: Session, edit: str, reason: str) -> None:
    notes: list[str] = []
    traced = examined(session, address(**DONOR, edit=edit), notes)
    assert traced.interventions == ()
    assert traced.example is traced.original
    assert any(reason in note and note.endswith("is ignored.") for note in notes), notes
    page = render_page(session, address(**DONOR, edit=edit))
    assert page.status == 200
    assert "is ignored." in page.html


@pytest.mark.parametrize("donor", ["", "  ", "x " * 600, "x" * 5000])
def test_donor_that_cannot_be_is_left_out_with_a_note(session: Session, donor: str) -> None:
    page = render_page(session, address(panel="lab", donor=donor, edit="memory@0"))
    assert page.status == 200
    notes: list[str] = []
    traced = examined(session, address(panel="lab", donor=donor, edit="memory@0"), notes)
    assert traced.donor is None
    assert traced.interventions == ()
    assert any("second sentence" in note for note in notes)


def test_more_than_the_maximum_of_interventions_is_cut_with_a_note(session: Session) -> None:
    groups = patch_groups(examined(session, address()).original.model)
    patches = [f"{name}@{place}" for names in groups.values() for name in names for place in range(9)]
    texts = [f"{CROSS}.0:zero", *patches]
    assert len(texts) > 65
    notes: list[str] = []
    traced = examined(session, address(**LONG, edit=texts), notes)
    assert len(traced.interventions) == 64
    assert [one.text for one in traced.interventions] == texts[:64]
    assert all("more than 64 interventions" in note for note in notes[:-1])
    assert notes[-1] == f"{len(texts) - 68} further interventions are ignored."
    assert traced.selection.interventions == tuple(texts[:64])


def test_long_analysis_gives_way_to_another_view(tiny: TinyRun, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []

    def is_waited_for() -> bool:
        calls.append(len(calls) >= 2)
        return calls[-1]

    session = Session(tiny.run, WebSettings(), is_waited_for=is_waited_for)
    query = address(**DONOR, edit=f"{SELF}.result@1")
    monkeypatch.setattr("glassformer.web.explorer.traced.SMALL", 0)
    with pytest.raises(ViewInterruptedError):
        render_page(session, query)
    first = render_page(session, query, complete=False).html
    assert first.count("data-pending") == 3  # the output, the heads, and the grid
    calls.clear()
    monkeypatch.setattr("glassformer.web.explorer.traced.SMALL", math.inf)
    assert "data-pending" not in render_page(session, query).html
    assert calls == []


def test_words_of_a_text_are_in_no_warning_of_a_panel(tiny: TinyRun, recwarn: pytest.WarningsRecorder) -> None:
    query = address(panel="lab", source="an unknown zebra", edit=f"{CROSS}.1:zero")
    page = render_page(Session(tiny.run, WebSettings()), query)
    assert page.status == 200
    assert "zebra" in Reader(page.html).text
    assert not recwarn.list
