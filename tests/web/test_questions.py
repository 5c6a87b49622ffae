"""Questions of a view: each leads to the view that answers it, with the same input."""

import pytest

from glassformer.web.explorer.page import render_page
from glassformer.web.explorer.panels.questions import Question, questions_of_head, questions_of_word
from glassformer.web.explorer.selection import Selection, parse_address
from glassformer.web.explorer.session import Session
from glassformer.web.explorer.views import views_of
from glassformer.web.settings import WebSettings
from tiny_run import TinyRun

FORCED = "?source=the+old+cat+sleeps&target=le+vieux+chat+dort&mode=forced"
HEAD = FORCED + "&part=decoder&layer=1&sublayer=cross_attention&head=1"
OFF = "decoder.layers.1.cross_attention.1:zero"


@pytest.fixture(scope="module")
def session(tiny: TinyRun) -> Session:
    return Session(tiny.run, WebSettings())


def questions_of(session: Session, query: str) -> list[Question]:
    traced = session.examine(parse_address(query)[0], [])
    return questions_of_head(traced, views_of(traced.example))


def answers(questions: list[Question]) -> dict[str, Selection]:
    return {one.text: parse_address(one.address)[0] for one in questions}


def test_head_leads_to_the_lab_without_it_its_alignment_and_its_training(session: Session) -> None:
    found = answers(questions_of(session, HEAD))
    assert list(found) == ["Switch it off", "Words it aligns", "How it was learned"]
    assert found["Switch it off"].interventions == (OFF,)
    assert found["Switch it off"].panel == "lab"
    assert found["Words it aligns"].reading == "1.1.naive"
    assert found["How it was learned"].head == 1
    assert {one.source for one in found.values()} == {"the old cat sleeps"}


def test_head_that_is_off_leads_to_the_lab_as_it_is(session: Session) -> None:
    found = answers(questions_of(session, f"{HEAD}&edit={OFF}"))
    assert found["What changes without it"].interventions == (OFF,)


@pytest.mark.parametrize("query", [FORCED, HEAD + "&stage=weights", HEAD + "&panel=compare"])
def test_view_that_is_not_a_head_has_no_questions_of_a_head(session: Session, query: str) -> None:
    assert questions_of(session, query) == []


def test_word_leads_to_every_view_that_explains_it_but_the_open_one() -> None:
    chosen = Selection(panel="lens", step=2, part="decoder", layer=1)
    assert [one.text for one in questions_of_word(chosen, ["lens", "lab"])] == ["by head"]
    assert answers(questions_of_word(chosen, ["lab"]))["by head"] == Selection(panel="lab", step=2, effect="word")
    assert questions_of_word(chosen, ["tour"]) == []


def test_every_question_of_a_page_opens_its_view_without_a_note(session: Session) -> None:
    for one in questions_of(session, HEAD):
        page = render_page(session, one.address)
        assert page.status == 200
        assert 'class="notes" data-slot="notes" aria-live="polite"></div>' in page.html
