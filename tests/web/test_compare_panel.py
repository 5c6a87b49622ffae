"""Compare: numbers of both sides, the difference, and where there is none."""

import re
from typing import Any

import numpy as np
import pytest
import torch

from explain.page_reader import Reader
from glassformer.web.explorer.other_side import compare_with_other
from glassformer.web.explorer.page import render_page
from glassformer.web.explorer.selection import parse_address
from glassformer.web.explorer.session import Session, TracedSelection
from glassformer.web.explorer.views import VIEWS
from glassformer.web.settings import WebSettings
from tiny_run import TinyRun, run_to_the_end

FORCED = "?source=the+old+cat+sleeps&target=le+vieux+chat+dort&mode=forced"
HEAD = "&part=decoder&layer=1&sublayer=cross_attention&head=1"
PATH = "decoder.layers.1.cross_attention"
OFF = f"{PATH}.1:zero"


@pytest.fixture(scope="module")
def session(tiny: TinyRun, tmp_path_factory: pytest.TempPathFactory) -> Session:
    path = tmp_path_factory.mktemp("other") / "other"
    changes = {"model.n_heads": 4, "text.vocab_size": 120, "train.max_steps": 2, "train.save_every": 2}
    run_to_the_end(tiny.config({**changes, "validation.every": 2}), path)
    return Session(tiny.run, WebSettings(), [path])


def traced(session: Session, query: str) -> TracedSelection:
    return session.examine(parse_address(query)[0], [])


def compared(session: Session, query: str) -> Any:
    return compare_with_other(session, traced(session, query))


def values(found: Any) -> list[np.ndarray]:
    return [np.array([[value for _, _, value in row] for row in one.table.cells]) for one in found.maps]


def test_difference_of_checkpoints_is_that_of_their_traces(session: Session) -> None:
    query = f"{FORCED}{HEAD}&panel=compare&other_checkpoint=step_00000040"
    found = compared(session, query).view
    sides = [traced(session, f"{FORCED}{one}") for one in ("&checkpoint=step_00000040", "")]
    weights = [one.example.trace[f"{PATH}.weights"][0, 1].double().numpy() for one in sides]
    first, second, difference = values(found)
    assert np.array_equal(first, weights[0])
    assert np.array_equal(second, weights[1])
    assert np.array_equal(difference, weights[1] - weights[0])
    assert found.first == "step 40"
    assert re.fullmatch(r"step \d+", found.second)
    page = Reader(render_page(session, query).html)
    shown = [float(one["data-value"]) for one in page.having("class", "s") if "data-value" in one]
    assert shown or difference.size


def test_losses_and_words_are_those_of_the_traces(session: Session) -> None:
    found = compared(session, f"{FORCED}&panel=compare&other_checkpoint=step_00000040&step=2").view
    sides = [traced(session, f"{FORCED}{one}").example for one in ("&checkpoint=step_00000040", "")]
    rows = [one.trace["output_projection.log_probabilities"][0].double() for one in sides]
    losses = [
        -row.gather(1, torch.tensor(one.predicted_ids)[:, None])[:, 0] for row, one in zip(rows, sides, strict=True)
    ]
    assert [one.value for one in found.losses] == (losses[1] - losses[0]).tolist()
    for side, loss in zip((found.first, found.second), losses, strict=True):
        assert f"{side}: {float(loss.mean()):.3f}" in found.loss
    probabilities = [row.exp()[2] for row in rows]
    labels = sides[1].sides[1].tokenizer.tokens(range(len(probabilities[1])))
    for one in found.words:
        index = labels.index(one.label.text)
        expected = float(probabilities[1][index] - probabilities[0][index])
        assert one.value == pytest.approx(expected, abs=1e-6)
    assert max(float(p.max()) for p in probabilities) == pytest.approx(
        max(max(float(w.first), float(w.second)) for w in found.words), abs=1e-4
    )


def test_same_checkpoint_on_both_sides_has_no_difference(session: Session) -> None:
    name = traced(session, FORCED).checkpoint.name
    found = compared(session, f"{FORCED}{HEAD}&panel=compare&other_checkpoint={name}").view
    assert not values(found)[2].any()
    assert "Both sides are equal here." in found.summary


def test_default_other_side_is_the_first_checkpoint(session: Session) -> None:
    beside = compared(session, f"{FORCED}&panel=compare")
    assert beside.view.first == "step 40"
    assert beside.other.checkpoint == "step_00000040"


def test_head_that_differs_most_is_chosen_where_the_address_names_none(session: Session) -> None:
    found = compared(session, f"{FORCED}&panel=compare").view
    row = next(one for one in found.heads if one.title == "decoder layer 1 cross-attention")
    current = [head for head in row.heads if head.current]
    assert len(current) == 1
    assert float(current[0].text) == max(float(head.text) for head in row.heads)


def test_heads_that_are_off_are_compared_with_every_head_on(session: Session) -> None:
    found = compared(session, f"{FORCED}&panel=compare&off={OFF}").view
    assert (found.first, found.second) == ("no intervention", "1 head off")
    losses = [float(one) for one in re.findall(r"\d+\.\d+", found.loss)[:2]]
    assert losses[0] != losses[1]


def test_patches_and_rows_are_named_as_what_they_are(session: Session) -> None:
    traced = session.examine(parse_address(FORCED)[0], [])
    keys = traced.example.trace["encoder.layers.0.self_attention.weights"].size(-1)
    row = f"encoder.layers.0.self_attention.0.1:{'-'.join(['1'] * keys)}"
    edits = f"edit=encoder.layers.0.self_attention.result@1&edit={row}"
    found = compared(session, f"{FORCED}&panel=compare&donor=the+young+dog+runs&{edits}").view
    assert (found.first, found.second) == ("no intervention", "1 patch, 1 row edited")


def test_words_of_two_sentences_are_matched(session: Session) -> None:
    found = compared(session, f"{FORCED}{HEAD}&panel=compare&other_source=the+young+cat+sleeps").view
    if found.refusal:
        assert "tokens of the" in found.refusal
    else:
        assert any(" / " in label.text for label in found.maps[2].table.columns.labels)
    assert "“the young cat sleeps”" in found.first
    same = compared(session, f"{FORCED}{HEAD}&panel=compare&other_source=the+old+cat+sleeps").view
    assert "the old cat" not in same.first


def test_difference_of_unlike_sentences_is_refused_with_the_reason(session: Session) -> None:
    long = "+".join(["we", "never", "see", "them", "in", "the", "big", "garden", "of", "the", "doctor"] * 2)
    found = compared(session, f"{FORCED}{HEAD}&panel=compare&other_source={long}").view
    assert "tokens of the" in found.refusal
    assert "the same words in the same order" in found.refusal
    assert len(found.maps) == 2
    page = render_page(session, f"{FORCED}{HEAD}&panel=compare&other_source={long}")
    assert page.status == 200
    assert "There is no difference to show." in page.html


def test_run_without_the_head_is_refused_with_the_number_of_heads(session: Session) -> None:
    query = "?run=other&source=the+old+cat+sleeps&target=le+chat&mode=forced&panel=compare"
    query += "&part=decoder&layer=1&sublayer=cross_attention&head=3"
    found = compared(session, f"{query}&other_run={next(iter(session.runs))}").view
    assert "head 3 is not among the 2 of decoder layer 1 cross-attention" in found.refusal
    assert len(found.maps) == 1


def test_other_run_with_another_vocabulary_is_compared_by_tokens(session: Session) -> None:
    found = compared(session, f"{FORCED}{HEAD}&panel=compare&other_run=other").view
    assert found.first.startswith("other")
    assert found.words
    assert found.refusal or found.maps[2]


@pytest.mark.parametrize(
    ("query", "note"),
    [
        ("&other_run=othre", "There is no run 'othre'; this is other."),
        ("&other_checkpoint=step_00000041", "There is no checkpoint 'step_00000041'; this is step_00000040."),
    ],
)
def test_unknown_other_side_is_the_nearest_one_with_a_note(session: Session, query: str, note: str) -> None:
    page = render_page(session, f"{FORCED}&panel=compare{query}")
    assert page.status == 200
    assert f"Other side: {note}" in Reader(page.html).text


def test_views_of_heads_and_up_keep_the_address(session: Session) -> None:
    selection, _ = parse_address(f"{FORCED}{HEAD}&panel=compare&other_checkpoint=step_00000040")
    assert selection.level == "model"
    above = selection.above
    assert above is not None
    assert (above.panel, above.head, above.level) == ("", 1, "head")
    html = render_page(session, selection.address).html
    assert 'aria-current="page">compare<' in html


def test_every_view_of_the_model_has_a_template(session: Session) -> None:
    for name in VIEWS:
        assert render_page(session, f"{FORCED}&panel={name}").status == 200, name
