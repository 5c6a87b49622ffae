"""Teacher forcing beside free running: both read the same words up to the first divergence."""

import pytest

from explain.page_reader import Reader
from glassformer.web.explorer.page import render_page
from glassformer.web.explorer.panels.free_running import free_running_of
from glassformer.web.explorer.selection import parse_address
from glassformer.web.explorer.session import Session
from glassformer.web.settings import WebSettings
from tiny_run import TinyRun

SOURCE = "?source=the+old+cat+sleeps"


@pytest.fixture(scope="module")
def session(tiny: TinyRun) -> Session:
    return Session(tiny.run, WebSettings())


def test_first_divergence_is_where_the_forced_model_prefers_another_word(session: Session) -> None:
    traced = session.examine(parse_address(f"{SOURCE}&target=le+chat+chat+dort&mode=forced")[0], [])
    view = free_running_of(traced)
    assert view is not None
    states = [one.state for one in view.steps]
    first = states.index("first")
    assert states == ["same"] * first + ["first"] + ["after"] * (len(states) - first - 1)
    choices = traced.example.trace["output_projection.probabilities"][0].argmax(-1).tolist()
    vocabulary = traced.example.sides[-1].vocabulary
    tokens = vocabulary.tokens(choices)
    assert [one.label.text for one in view.steps[: first + 1]] == tokens[: first + 1]
    assert choices[first] != traced.example.predicted_ids[first]
    assert choices[:first] == traced.example.predicted_ids[:first]
    assert view.summary.startswith(f"First divergence at step {first}: the model chooses ")
    place = parse_address(view.steps[0].address)[0]
    assert (place.mode, place.target, place.step) == ("greedy", "", 0)


def test_own_translation_as_target_has_no_divergence(session: Session) -> None:
    own = session.examine(parse_address(f"{SOURCE}&mode=greedy")[0], []).example.target
    query = f"{SOURCE}&mode=forced&target={own.replace(' ', '+')}"
    view = free_running_of(session.examine(parse_address(query)[0], []))
    assert view is not None
    assert {one.state for one in view.steps} == {"same"}
    assert "By itself the model writes the target." in Reader(render_page(session, query).html).text


@pytest.mark.parametrize(
    "rest", ["&mode=beam", "&mode=forced&target=le+chat&edit=decoder.layers.1.cross_attention.1:zero"]
)
def test_rows_are_compared_only_for_a_typed_target_of_the_model_itself(session: Session, rest: str) -> None:
    assert free_running_of(session.examine(parse_address(SOURCE + rest)[0], [])) is None
