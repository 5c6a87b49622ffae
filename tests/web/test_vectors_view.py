"""The view from text to vectors: merges, one-hot, rows and positions are those of the tokenizer and of the trace."""

import re
from typing import Any
from urllib.parse import quote

import pytest
import torch

from explain.page_reader import Reader
from explain.small_examples import EXAMPLES
from glassformer.explain.example import Example
from glassformer.explain.formula.dataflow import embeddings
from glassformer.explain.page.wording import token
from glassformer.text import TextConfig, train_tokenizers
from glassformer.web.explorer.page import render_page
from glassformer.web.explorer.panels import vectors
from glassformer.web.explorer.panels.cell import cell_of
from glassformer.web.explorer.panels.position_curve import curve_of, rows_of
from glassformer.web.explorer.panels.vectors import VectorsView, has_vectors, vectors_of
from glassformer.web.explorer.places import resolve_selection
from glassformer.web.explorer.selection import Selection, parse_address
from glassformer.web.explorer.session import Session
from glassformer.web.settings import WebSettings
from tiny_run import TinyRun

KINDS = [name for name in EXAMPLES if name not in ("vit", "series")]
SOURCE = "the old cat sleeps"
FORCED = f"?source={SOURCE.replace(' ', '+')}&target=le+vieux+chat+dort&mode=forced&panel=vectors"


@pytest.fixture(scope="module")
def session(tiny: TinyRun) -> Session:
    return Session(tiny.run, WebSettings())


@pytest.fixture(scope="module", params=KINDS)
def example(request: pytest.FixtureRequest) -> Example:
    return EXAMPLES[request.param]()


def page_of(session: Session, query: str) -> str:
    page = render_page(session, FORCED + query)
    assert page.status == 200
    return page.html


def view_of(example: Example, notes: list[str] | None = None, **fields: Any) -> VectorsView:
    selection = resolve_selection(Selection(panel="vectors", **fields), example, [])
    return vectors_of(example, selection, [] if notes is None else notes)


def test_every_token_of_every_kind_of_model_has_a_view(example: Example) -> None:
    assert has_vectors(example)
    for number, side in enumerate(example.sides):
        path = list(embeddings(example.model).values())[number if example.translated else 0]
        for position in range(len(side.ids)):
            view = view_of(example, side=side.name, position=position)
            chips = [chip for word in view.words for chip in word.tokens]
            assert [chip.id for chip in chips] == list(side.ids)
            assert [chip.current for chip in chips].index(True) == position
            assert view.stepper is None or view.stepper.passed
            for row in view.rows:
                recorded = rows_of(example, row.name)[position]
                assert row.name.startswith(f"{path}.")
                assert [cell.value for cell in row.cells] == recorded[: len(row.cells)].tolist()


def test_every_number_leads_to_its_cell(example: Example) -> None:
    view = view_of(example, position=1, dimension=3)
    for row in view.rows:
        for cell in row.cells:
            notes: list[str] = []
            selection = resolve_selection(parse_address(cell.address)[0], example, notes)
            assert notes == []
            assert cell_of(example, selection).value == cell.value, row.name
    hot = resolve_selection(parse_address(view.one_hot.address)[0], example, [])
    assert cell_of(example, hot).value == 1.0
    assert [entry[2] for entry in view.one_hot.entries].count(True) == 1
    if view.curve and view.curve.address:
        chosen = resolve_selection(parse_address(view.curve.address)[0], example, [])
        assert cell_of(example, chosen).passed


def test_curve_goes_through_the_encoding_of_each_position(example: Example) -> None:
    stack, path = next(iter(embeddings(example.model).items()))
    for dimension in (0, 3):
        view = view_of(example, position=1, dimension=dimension)
        curve = curve_of(example, view.place, stack, path)
        assert curve is not None
        if f"{path}.encoding" in example.trace:
            numbers = rows_of(example, f"{path}.encoding")[:, dimension].tolist()
            assert [point.text for point in curve.points] == [f"{value:.4f}".replace("-", "−") for value in numbers]
        assert curve.kind in ("sinusoidal", "learned", "rotary", "none")
        if curve.points:
            [current] = [point for point in curve.points if point.current]
            assert current.position == 1
            assert current.x == curve.marker
    if curve.kind == "sinusoidal":
        drawn = [tuple(map(float, pair.split())) for pair in curve.paths[0][1][1:].split("L")]
        for point in curve.points:
            nearest = min(drawn, key=lambda pair: abs(pair[0] - point.x))
            assert nearest[1] == pytest.approx(point.y, abs=6)


def test_dimension_of_rotary_positions_turns_as_the_model_does() -> None:
    example = next(one for one in (EXAMPLES[name]() for name in KINDS) if "rotated_q" in " ".join(one.trace))
    view = view_of(example, position=2, dimension=0)
    assert view.curve is not None
    assert view.curve.kind == "rotary"
    rotary = example.model.get_submodule(next(iter(embeddings(example.model)))).layers[0].self_attention.rotary
    angles = rotary.angles(len(view.curve.points), torch.device("cpu"))[:, 0]
    assert [point.text for point in view.curve.points] == [f"{a:.4f}".replace("-", "−") for a in angles.cos().tolist()]


def test_stepper_shows_the_merges_of_the_tokenizer(session: Session, tiny: TinyRun) -> None:
    tokenizer = tiny.translator.tokenizers.source
    example = session.examine(parse_address(FORCED)[0], []).example
    cut = max(tokenizer.segmentations(example.source_ids), key=lambda one: len(one.merges))
    word = "".join(cut.symbols).removesuffix("</w>")
    assert word in SOURCE.split()
    assert cut.merges == tokenizer.merges_of(word)
    assert len(cut.merges) >= 2
    position = example.source_ids.index(cut.ids[0])
    states = [cut.symbols, *(merge.symbols for merge in cut.merges)]
    for number, state in enumerate(states):
        html = page_of(session, f"&position={position}&merge={number}")
        shown = html[html.index('class="symbols"') :].partition("</ol>")[0]
        assert re.findall(r"<bdi>(.*?)</bdi>", shown) == [str(token(text)) for text in state]
        assert f"merges applied: {number} of {len(cut.merges)}" in html
        assert shown.count("(new)") == (number > 0)
        if number:
            assert f"of rank {cut.merges[number - 1].rank:,}" in html


def test_segmentations_end_at_the_encoding() -> None:
    lines = ["low lower lowest", "naïve 日本 🚀 !", "the newest"] * 3
    for config in (
        TextConfig(kind="bpe", vocab_size=60, min_frequency=1),
        TextConfig(kind="bpe", vocab_size=330, min_frequency=1, byte_fallback=True),
        TextConfig(kind="bytes", vocab_size=300, min_frequency=1),
        TextConfig(kind="word", vocab_size=40, min_frequency=1),
        TextConfig(kind="char", vocab_size=60, min_frequency=1),
    ):
        tokenizer = train_tokenizers(config, lines.copy, lines.copy).source
        for text in ("lowest newest", "日本 🚀!", "unknown żółw", "", " ", "a‍b"):
            ids = [tokenizer.start_id, *tokenizer.encode(text), tokenizer.end_id]
            cuts = tokenizer.segmentations(ids)
            assert [i for cut in cuts for i in cut.ids] == ids, (config.kind, text)
            for cut in cuts:
                last = cut.merges[-1].symbols if cut.merges else cut.symbols
                assert last == tokenizer.tokens(cut.ids), (config.kind, text)


def test_bytes_are_shown_as_bytes() -> None:
    lines = ["日本語 and €"] * 3
    tokenizer = train_tokenizers(
        TextConfig(kind="bytes", vocab_size=262, min_frequency=1), lines.copy, lines.copy
    ).source
    [first, *_] = tokenizer.segmentations(tokenizer.encode("語"))
    assert first.symbols == ["<0xE8>", "<0xAA>", "<0x9E>"]


@pytest.mark.parametrize(
    ("query", "note"),
    [
        ("&position=99", "token 99 is outside 0 to"),
        ("&dimension=99", "dimension 99 is outside 0 to 15"),
        ("&side=middle", "no input 'middle'"),
        ("&position=0&merge=99", "merge 99 is outside"),
        ("&position=-1", "position='-1' cannot be read"),
        ("&dimension=1.5", "dimension='1.5' cannot be read"),
    ],
)
def test_place_that_is_not_there_gives_the_nearest_with_a_note(session: Session, query: str, note: str) -> None:
    html = page_of(session, query)
    notes = html[html.index('<div class="notes"') :].partition("</div>")[0]
    assert note in Reader(f"{notes}</div>").text
    assert "token" in html


def test_merges_of_a_token_without_any_are_a_note(session: Session) -> None:
    html = page_of(session, "&side=target&position=0&merge=3")
    assert "This token has no merges." in html
    assert "No merges: this token is a single symbol" in html


@pytest.mark.parametrize("source", ["العربية القط", "猫が寝る", "e\u0301 👩\u200d👧 a\u202eb", "<b>bold</b>", "a\tb"])
def test_any_script_has_a_view(session: Session, source: str) -> None:
    for position in (0, 1, 2):
        page = render_page(session, f"?source={quote(source)}&panel=vectors&position={position}")
        assert page.status == 200
        Reader(page.html)
        assert "✗" not in page.html
        assert "<b>bold" not in page.html


def test_long_text_shows_the_words_around_the_token(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "MAX_WORDS", 3)
    html = page_of(session, "&position=0")
    assert "Words 0 to 2 of 5 are written here." in html
    assert html.count('class="cut-word"') == 3
    last = len(session.examine(parse_address(FORCED)[0], []).example.source_ids) - 1
    assert "Words 2 to 4 of 5 are written here." in page_of(session, f"&position={last}")
