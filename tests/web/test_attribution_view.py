"""The attribution of a word on the page: its numbers are those of the analyses, and its checks hold."""

import pytest
import torch

from explain.page_reader import Reader
from glassformer.explain.analysis.attribution import Goal, direct_logit_attribution, integrated_gradients
from glassformer.explain.analysis.interventions import Inputs
from glassformer.explain.analysis.rollout import attention_rollout
from glassformer.text.decimals import aligned
from glassformer.web.explorer.page import render_page
from glassformer.web.explorer.panels.attribution import attribution_of, has_attribution
from glassformer.web.explorer.selection import parse_address
from glassformer.web.explorer.session import Session
from glassformer.web.settings import WebSettings
from tiny_run import TinyRun
from tiny_tasks import made

QUERY = "?source=the+old+cat+sleeps&target=le+vieux+chat+dort&mode=forced&panel=attribution&step=2"


@pytest.fixture(scope="module")
def session(tiny: TinyRun) -> Session:
    return Session(tiny.run, WebSettings())


def test_numbers_are_those_of_the_analyses(session: Session) -> None:
    traced = session.examine(parse_address(QUERY)[0], [])
    example, view = traced.example, attribution_of(traced)
    token = example.predicted_ids[2]
    gradients = integrated_gradients(example.model, Inputs.of(example), Goal(2, token), 64)
    assert view.tokens is not None
    (_, source), (_, target) = view.tokens.sides
    assert [one.value for one in source] == gradients.source.tolist()
    assert [one.value for one in target] == gradients.target.tolist()[:3]  # a later token is not read
    assert gradients.target.tolist()[3:] == [0.0] * (len(example.target_ids) - 3)
    parts = direct_logit_attribution(example.trace, 2, token)
    listed = {one.label.text: one.value for one in view.parts.parts}
    largest = int(parts.contributions.abs().argmax())
    assert max(listed.values(), key=abs) == float(parts.contributions[largest])
    assert sum(one.value for one in view.parts.kinds) == pytest.approx(parts.logit, abs=1e-4)
    rollout = attention_rollout(example.trace).last[0].double()
    assert [[value for _, _, value in row] for row in view.rollout.rows] == rollout.tolist()
    assert (view.tokens.passed, view.parts.passed, view.rollout.passed) == (True, True, True)


def test_checks_fail_where_the_numbers_do_not_add_up(session: Session) -> None:
    trace = session.examine(parse_address(QUERY)[0], []).example.trace
    name = "decoder.layers.1.cross_attention.context"
    good = trace[name]
    trace[name] = good + 0.5
    try:
        page = Reader(render_page(session, QUERY).html).text
    finally:
        trace[name] = good
    assert "✗ the parts sum to the logit" in page
    assert "✗" not in Reader(render_page(session, QUERY).html).text.partition("By part of the decoder")[2]


def test_interventions_are_left_out_with_a_note(session: Session) -> None:
    plain = attribution_of(session.examine(parse_address(QUERY)[0], []))
    edited = attribution_of(
        session.examine(parse_address(f"{QUERY}&edit=decoder.layers.1.cross_attention.1:zero")[0], [])
    )
    assert edited.note
    assert plain.tokens is not None
    assert edited.tokens is not None
    sides = zip(plain.tokens.sides, edited.tokens.sides, strict=True)
    assert all([one.value for one in a[1]] == [one.value for one in b[1]] for a, b in sides)
    assert plain.rollout == edited.rollout


@pytest.mark.parametrize(("task", "exists"), [("language", True), ("masked", False), ("classification", False)])
def test_models_with_a_decoder_have_the_view(task: str, exists: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    session = Session(made(tmp_path_factory, task).run, WebSettings())
    text = "the [MASK] dog" if task == "masked" else "the old dog"
    traced = session.examine(parse_address(f"?source={text}&panel=attribution&step=1")[0], [])
    assert has_attribution(traced.example) == exists
    page = render_page(session, f"?source={text}&panel=attribution&step=1")
    assert page.status == 200
    assert ("By part of the decoder" in page.html) == exists
    if exists:
        view = attribution_of(traced)
        assert view.tokens is not None
        assert [len(shares) for _, shares in view.tokens.sides] == [2]
        total = torch.tensor([one.value for one in view.tokens.sides[0][1]]).sum()
        assert aligned(float(total), 3) in view.tokens.check
