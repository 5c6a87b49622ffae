"""Statements of the panels: summaries, terms, formulas and checks say what the numbers say."""

import math

import pytest

from explain.page_reader import Reader
from explain.small_examples import EXAMPLES
from glassformer.errors import ConfigError
from glassformer.explain.example import Example
from glassformer.explain.page.sheets import entropy
from glassformer.explain.walkthrough.step import TracedMatrix
from glassformer.text.decimals import aligned, decimal, weight
from glassformer.web.explorer.page import render_page
from glassformer.web.explorer.panels.cell import cell_of
from glassformer.web.explorer.panels.chain import chains_of
from glassformer.web.explorer.panels.matrix import table_of
from glassformer.web.explorer.picture import data_address
from glassformer.web.explorer.places import grid_axes, resolve_selection, select
from glassformer.web.explorer.selection import Selection, parse_address
from glassformer.web.explorer.session import Session
from glassformer.web.settings import WebSettings
from tiny_run import TinyRun

FORCED = "?source=the+old+cat+sleeps&target=le+vieux+chat+dort&mode=forced"
CROSS = "&part=decoder&layer=1&sublayer=cross_attention"
LONG = "?source=" + "+".join(["the old cat sleeps".replace(" ", "+")] * 12) + "&target=le+chat&mode=forced"
LONG_WEIGHTS = LONG + "&part=encoder&layer=0&sublayer=self_attention&head=1&stage=weights"


@pytest.fixture(scope="module")
def session(tiny: TinyRun) -> Session:
    return Session(tiny.run, WebSettings())


def example_of(session: Session, query: str) -> Example:
    return session.examine(parse_address(query)[0], []).example


def test_summary_of_a_part_is_that_of_the_whole_tensor(session: Session) -> None:
    values = example_of(session, LONG).trace["encoder.layers.0.self_attention.weights"][0, 1].double().numpy()
    size = len(values)
    assert size > 32
    for row in (0, size - 1):
        text = Reader(render_page(session, f"{LONG_WEIGHTS}&row={row}&column={row}").html).text
        assert f"Whole tensor, {size} × {size}. The largest weight is {weight(values.max())}: " in text
        assert f"a row spreads over {aligned(math.exp(entropy(values)), 1)} entries" in text
        assert " attends to " in text


def test_overview_has_colors_up_to_the_largest_weight(session: Session) -> None:
    text = "the+old+cat+sleeps+" * 5
    query = LONG_WEIGHTS.replace(LONG, f"?source={text}&target=le+chat&mode=forced")
    values = example_of(session, query).trace["encoder.layers.0.self_attention.weights"][0, 1].double().numpy()
    assert 32 < len(values) <= 64
    page = Reader(render_page(session, query).html)
    [image] = page.having("class", "overview")
    assert image["src"] == data_address(values / values.max(), "weights")
    assert f"colors from 0 to {decimal(values.max())}" in page.text


def test_mask_is_summed_up_by_its_allowed_pairs(session: Session) -> None:
    html = render_page(session, FORCED + "&part=decoder&layer=0&sublayer=self_attention&stage=mask").html
    assert "pairs are allowed." in Reader(html).text
    assert "spreads over" not in html


@pytest.mark.parametrize("kind", [name for name in EXAMPLES if name not in ("vit", "series")])
def test_terms_are_products_and_add_up_to_their_number(kind: str) -> None:
    example = EXAMPLES[kind]()
    base, sums = resolve_selection(Selection(), example, []), 0
    for name in example.trace:
        index = {"head": 0, **dict.fromkeys(grid_axes(example, name), 0)}
        cell = cell_of(example, resolve_selection(select(base, example, name, index), example, []))
        values = [[float(operand.value) for operand in term.operands] for term in cell.terms]
        shown = [float(term.value.replace("−", "-").replace(",", "")) for term in cell.terms]
        if cell.terms_title.startswith("Its term"):
            for term, numbers, value in zip(cell.terms, values, shown, strict=True):
                if term.separator == "·":
                    assert math.prod(numbers) == pytest.approx(value, rel=1e-3, abs=1e-6), name
            if not cell.others:
                assert sum(shown) == pytest.approx(cell.value, rel=5e-3, abs=5e-3), name
                sums += 1
        elif cell.terms_title == "Operands":
            assert not cell.has_bars
            assert all(len(term.operands) == 1 for term in cell.terms), name
    assert sums > 3


def test_normalized_number_has_operands_and_a_score_has_terms(session: Session) -> None:
    normed = render_page(session, FORCED + CROSS + "_norm&stage=normed&row=2&column=1").html
    assert "<h3>Operands</h3>" in normed
    assert '<span class="times">' not in normed
    assert 'class="share"' not in normed
    score = render_page(session, FORCED + CROSS + "&head=0&stage=scores&row=2&column=1").html
    assert "<h3>Its terms, largest first</h3>" in score
    assert '<span class="times">·</span>' in score
    weights = render_page(session, FORCED + CROSS + "&head=0&stage=weights&row=2&column=1").html
    assert "<h3>Terms exp(score − largest score), largest first</h3>" in weights


def test_keys_and_values_of_cross_attention_are_computed_from_the_memory(session: Session) -> None:
    selection = parse_address(FORCED + CROSS + "&head=0")[0]
    [chain] = chains_of(example_of(session, FORCED), selection)
    symbols = {card.name.rpartition(".")[2]: card.text.symbol for card in chain.cards}
    assert (symbols["memory"], symbols["q"]) == ("m", "Q = x W^Q + b^Q")
    assert (symbols["k"], symbols["v"]) == ("K = m W^K + b^K", "V = m W^V + b^V")
    own = parse_address(FORCED + CROSS.replace("cross", "self") + "&head=0")[0]
    [chain] = chains_of(example_of(session, FORCED), own)
    assert "K = x W^K + b^K" in [card.text.symbol for card in chain.cards]


@pytest.mark.parametrize("pre", [False, True])
def test_title_of_a_normalization_names_its_order(session: Session, pre: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = example_of(session, FORCED).model
    monkeypatch.setattr(model.get_submodule("decoder.layers.1.cross_attention_norm"), "pre", pre)
    page = render_page(session, FORCED + CROSS + "_norm")
    text = Reader(page.html).text
    expected = "Norm before cross-attention, then add" if pre else "Add & Norm after cross-attention"
    assert f"{expected} · decoder, layer 1" in text
    assert ("is normalized before the sub-layer" in text) == pre
    assert ("x + Sublayer(Norm(x))" in text) == pre


def test_check_of_a_part_speaks_of_the_numbers_shown(session: Session) -> None:
    text = Reader(render_page(session, FORCED + CROSS + "_norm&stage=normed").html).text
    assert "numbers shown are recomputed" in text
    long = Reader(render_page(session, LONG_WEIGHTS).html).text
    assert "✓ 640 of 1,024 numbers shown are recomputed" in long


def test_card_states_how_many_of_its_numbers_were_checked(session: Session) -> None:
    values = example_of(session, FORCED).trace["decoder.layers.1.cross_attention.q"][0, 0]
    html = render_page(session, FORCED + CROSS + "&head=0").html
    assert f'title="9 of {values.numel():,} numbers checked"' in html


def test_wrong_numbers_stay_marked_where_others_have_no_formula(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = example_of(session, FORCED)
    selection = resolve_selection(parse_address(FORCED + CROSS + "&head=0&stage=weights")[0], example, [])
    name = "decoder.layers.1.cross_attention.weights"
    formula = TracedMatrix.formula
    assert table_of(example, selection).state == "passed"

    def partly(matrix: TracedMatrix, row: int, column: int = 0) -> object:
        if row > 0:
            raise ConfigError("no formula here")
        return formula(matrix, row, column)

    monkeypatch.setattr(TracedMatrix, "formula", partly)
    unchecked = table_of(example, selection)
    assert (unchecked.state, unchecked.check) == ("unchecked", "no formula here")
    good = example.trace[name]
    bad = good.clone()
    bad[0, 0, 0, 1] += 0.25
    example.trace[name] = bad
    try:
        failed = table_of(example, selection)
    finally:
        example.trace[name] = good
    assert failed.state == "failed"
    assert failed.check.startswith("✗ 1 of")
    assert "wrong" in failed.cells[0]


def test_error_is_a_sentence_below_its_heading(session: Session) -> None:
    page = render_page(session, "?source=" + "x" * 5000)
    assert "This view cannot be shown" in page.html
    assert "The text has 5,000 characters" in Reader(page.html).text
