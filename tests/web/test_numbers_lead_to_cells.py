"""Every number of a drawn attention and of the output leads to the numbers that it is made of."""

import re
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import nn

from explain.page_reader import Reader
from glassformer.explain.analysis.attention_measures import entropy
from glassformer.explain.example import Example
from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.feed_forward import FeedForward
from glassformer.text.decimals import aligned, weight
from glassformer.web.explorer.page import render_page
from glassformer.web.explorer.panels.heads import head_rows
from glassformer.web.explorer.panels.matrix import table_of
from glassformer.web.explorer.panels.output import output_of
from glassformer.web.explorer.panels.sentence import SentenceView, sentence_of
from glassformer.web.explorer.panels.wording import tensor_text
from glassformer.web.explorer.places import resolve_selection
from glassformer.web.explorer.selection import parse_address
from glassformer.web.explorer.session import Session
from glassformer.web.settings import WebSettings
from tiny_run import TinyRun

FORCED = "?source=the+old+cat+sleeps&target=le+vieux+chat+dort&mode=forced&step=2&table=heads"
PIECES = "catdog+oldthe"
CROSS = "decoder.layers.1.cross_attention"


@pytest.fixture(scope="module")
def session(tiny: TinyRun) -> Session:
    return Session(tiny.run, WebSettings())


def view_at(session: Session, query: str = "", head: int | None = None) -> tuple[Example, SentenceView]:
    selection = parse_address(FORCED + query)[0]
    example = session.examine(selection, []).example
    return example, sentence_of(example, resolve_selection(selection, example, []), CROSS, head)


def number_at(example: Example, address: str) -> float:
    """The number that an address selects, in the trace."""
    place = parse_address(address)[0]
    assert (place.path, place.stage) == (CROSS, "weights")
    return float(example.trace[f"{CROSS}.weights"][0, place.head, place.row, place.column])


def recorded(example: Example) -> NDArray[np.float64]:
    weights: NDArray[np.float64] = example.trace[f"{CROSS}.weights"][0].double().numpy()
    return weights


def test_each_line_of_a_head_leads_to_its_number(session: Session) -> None:
    example, view = view_at(session, head=1)
    assert len(view.lines) > 4
    for line in view.lines:
        assert line.text == weight(number_at(example, line.address))
        assert recorded(example)[1, line.query, line.key] == number_at(example, line.address)
    assert number_at(example, view.largest.address) == recorded(example)[1, 2].max() == view.largest.value


def test_mean_of_the_heads_is_that_of_the_numbers_in_its_table(session: Session) -> None:
    example, view = view_at(session)
    assert view.by_head is not None
    *heads, mean = view.by_head.rows
    assert mean.name == "mean"
    for number, row in enumerate(heads):
        values = [number_at(example, one.address) for one in row.weights]
        assert values == [one.value for one in row.weights] == recorded(example)[number, 2].tolist()
        assert row.entropy == aligned(entropy(np.array([values])), 2)
    for key, one in enumerate(mean.weights):
        column = [row.weights[key].value for row in heads]
        assert one.value == pytest.approx(sum(column) / len(column), abs=1e-12)
        assert number_at(example, one.address) == max(column)
        assert f"the largest is {weight(max(column))} of head {column.index(max(column))}" in one.origin


def test_words_have_the_sum_of_their_keys_and_the_mean_of_their_queries(session: Session) -> None:
    example, view = view_at(session, f"&source={PIECES}&target={PIECES}&units=words&step=0", head=1)
    weights, spans = recorded(example)[1], [(place.label.position, place.label.span) for place in view.keys]
    assert max(span for _, span in spans) > 1
    assert sum(span for _, span in spans) == weights.shape[1]
    span = view.queries[0].label.span
    assert span > 1
    row = weights[:span].mean(0)
    assert view.by_head is not None
    expected = [row[start : start + count].sum() for start, count in spans]
    assert [one.value for one in view.by_head.rows[1].weights] == pytest.approx(expected, abs=1e-12)
    for (start, count), one in zip(spans, view.by_head.rows[1].weights, strict=True):
        assert number_at(example, one.address) == weights[:span, start : start + count].max()
    assert "A word as key has the sum of its tokens, as query their mean." in view.notes


def test_hidden_tokens_are_named_with_their_share(session: Session) -> None:
    example, view = view_at(session, "&special=hidden", head=1)
    assert "</s>" not in [place.label.text for place in (*view.keys, *view.queries)]
    hidden = recorded(example)[:, :, -1].mean()
    assert any(f"have {hidden:.0%} of the attention" in note for note in view.notes)
    assert view.by_head is not None
    shown = sum(one.value for one in view.by_head.rows[1].weights)
    assert shown == pytest.approx(1 - recorded(example)[1, 2, -1], abs=1e-6)
    assert not view.by_head.has_entropy
    assert not view_at(session, "", head=1)[1].notes


def test_table_of_the_heads_is_shown_on_demand(session: Session) -> None:
    selection = parse_address(FORCED.replace("&table=heads", ""))[0]
    example = session.examine(selection, []).example
    view = sentence_of(example, selection, CROSS)
    assert view.by_head is None
    assert parse_address(view.table_address)[0] == replace(selection, table="heads")
    assert parse_address(view_at(session)[1].table_address)[0].table == ""
    for line in view.lines:
        head, row, column = line.place.split("-")
        address = view.pattern.replace("=9999990", f"={head}").replace("=9999991", f"={row}")
        assert address.replace("=9999992", f"={column}") == line.address


def test_unknown_drawing_is_ignored_with_a_note(session: Session) -> None:
    page = render_page(session, f"{FORCED}&units=letters")
    assert page.status == 200
    assert "units='letters' cannot be read and is ignored." in Reader(page.html).text


def test_entropy_of_a_picture_is_the_mean_of_the_rows_of_its_matrix(session: Session) -> None:
    selection = parse_address(FORCED)[0]
    example = session.examine(selection, []).example
    [row] = [one for one in head_rows(example, selection) if one.title == "Decoder cross-attention, layer 1"]
    for picture in row.heads:
        table = table_of(example, parse_address(picture.weights)[0])
        values = recorded(example)[picture.number]
        assert list(table.entropies) == [aligned(entropy(one[None]), 2) for one in values]
        assert picture.measure.removeprefix("entropy ") in table.mean_entropy
        assert picture.measure == f"entropy {aligned(entropy(values), 2)}"


def test_entropy_of_the_output_is_the_sum_of_its_terms(session: Session) -> None:
    selection = resolve_selection(parse_address(FORCED)[0], session.examine(parse_address(FORCED)[0], []).example, [])
    example = session.examine(selection, []).example
    view = output_of(example, selection)
    assert view is not None
    row = example.trace["output_projection.probabilities"][0, 2].double().numpy()
    terms = [float(one.term) for one in view.candidates]
    assert sum(terms) + float(view.rest_term) == pytest.approx(entropy(row[None]), abs=1e-3)
    assert view.entropy == aligned(entropy(row[None]), 2)
    for one in view.candidates:
        place = parse_address(one.logit_address)[0]
        assert (place.path, place.stage, place.row) == ("output_projection", "logits", 2)
        logit = float(example.trace["output_projection.logits"][0, 2, place.column])
        assert one.logit == aligned(logit, 3)
        assert one.rank == 1 + int((row > row[one.index]).sum())
    assert "</w>" not in view.verdict


@pytest.mark.parametrize("bias", [True, False])
def test_bias_is_written_only_where_there_is_one(bias: bool) -> None:
    attention = MultiHeadAttention(4, 2, 2, 2, nn.Identity(), bias=bias)
    feed = FeedForward(4, 8, nn.ReLU(), bias=bias)
    symbols = [tensor_text(stage, "encoder.self_attention", attention).symbol for stage in ("q", "k", "v", "result")]
    symbols += [tensor_text(stage, "encoder.feed_forward", feed).symbol for stage in ("inner", "result")]
    assert [bool(re.search(r" \+ b[_^]", symbol)) for symbol in symbols] == [bias] * 6
