"""Heads that are switched off: the address, the edits, and the numbers of the lab."""

from dataclasses import replace
from io import BytesIO
from urllib.parse import urlencode

import numpy as np
import pytest
import torch

from glassformer.explain.analysis.heads import head_ablation
from glassformer.explain.analysis.interventions import Inputs, attentions
from glassformer.explain.matrix import Label
from glassformer.text.decimals import aligned
from glassformer.web.explorer.interventions import HeadOff, edits_of, parse_interventions
from glassformer.web.explorer.page import export_panel, render_page
from glassformer.web.explorer.panels.lab import lab_of
from glassformer.web.explorer.selection import Selection, parse_address
from glassformer.web.explorer.session import Session
from glassformer.web.settings import WebSettings
from tiny_run import TinyRun
from tiny_tasks import made

FORCED = "?source=the+old+cat+sleeps&target=le+vieux+chat+dort&mode=forced"
HEAD = HeadOff("decoder.layers.1.cross_attention", 1, "zero")


@pytest.fixture
def session(tiny: TinyRun) -> Session:
    return Session(tiny.run, WebSettings())


def selected(query: str) -> Selection:
    return parse_address(query)[0]


def test_head_off_gives_nothing_and_the_others_are_unchanged(session: Session) -> None:
    traced = session.examine(selected(f"{FORCED}&off={HEAD.text}"), [])
    before, after = (one.trace[f"{HEAD.path}.context"][0] for one in (traced.original, traced.example))
    assert not after[1].any()
    assert torch.equal(before[0], after[0])
    assert traced.original.target == traced.example.target == "le vieux chat dort"
    assert traced.example is not session.examine(selected(FORCED), []).example


def test_mean_of_one_head_and_zero_of_another(session: Session) -> None:
    other = HeadOff(HEAD.path, 0, "mean")
    traced = session.examine(selected(f"{FORCED}&off={HEAD.text}&off={other.text}"), [])
    before, after = (one.trace[f"{HEAD.path}.context"][0] for one in (traced.original, traced.example))
    assert not after[1].any()
    means = before[0].cumsum(0) / torch.arange(1, len(before[0]) + 1)[:, None]
    assert torch.allclose(after[0], means, atol=1e-6)


@pytest.mark.parametrize("text", ["nonsense", "decoder.layers.1.cross_attention.9:zero", HEAD.text + "x", "a.0:zero"])
def test_unknown_heads_are_ignored_with_a_note(session: Session, text: str) -> None:
    notes: list[str] = []
    traced = session.examine(selected(f"{FORCED}&off={text}"), notes)
    assert traced.interventions == ()
    assert traced.example is traced.original
    assert "is no head of this model" in notes[0]


def test_no_head_off_is_no_edit(session: Session) -> None:
    original = session.examine(selected(FORCED), []).original
    assert edits_of([], original) == {}
    assert parse_interventions([HEAD.text], original, []) == [HEAD]


def test_numbers_of_the_lab_are_those_of_the_ablation(session: Session, tiny: TinyRun) -> None:
    traced = session.examine(selected(f"{FORCED}&off={HEAD.text}&step=2"), [])
    lab = lab_of(traced, "")
    predicted = torch.tensor([traced.original.predicted_ids])
    ablation = head_ablation(traced.original.model, Inputs.of(traced.original), predicted)
    expected = [aligned(-value, 3) for value in ablation.loss_change.flatten().tolist()]
    assert [head.change for row in lab.rows for head in row.heads] == expected
    assert lab.change is not None
    assert float(lab.change.loss) == pytest.approx(ablation.loss, abs=1e-3)
    place = list(attentions(traced.original.model)).index(HEAD.path)
    assert float(lab.change.loss_after) == pytest.approx(
        ablation.loss + float(ablation.loss_change[place, 1]), abs=2e-3
    )
    assert [head.off for row in lab.rows for head in row.heads].count(True) == 1
    assert lab.change.output is not None
    assert lab.change.output.before == tiny.translator.translate(["the old cat sleeps"])[0]


def test_heads_off_by_their_former_name_in_the_address(session: Session) -> None:
    assert selected(f"{FORCED}&off={HEAD.text}") == selected(f"{FORCED}&edit={HEAD.text}")
    assert session.examine(selected(f"{FORCED}&edit={HEAD.text}"), []).interventions == (HEAD,)


def test_ablation_is_computed_once_for_a_sentence(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    lab_of(session.examine(selected(f"{FORCED}&panel=lab"), []), "")
    monkeypatch.setattr("glassformer.web.explorer.panels.lab.head_ablation", None)
    lab_of(session.examine(selected(f"{FORCED}&panel=lab&off={HEAD.text}&step=1"), []), "")


@pytest.mark.parametrize(("task", "text"), [("language", "the old cat"), ("masked", "the [MASK] cat")])
def test_heads_off_in_models_of_one_text(task: str, text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    session = Session(made(tmp_path_factory, task).run, WebSettings())
    stack = "decoder" if task == "language" else "encoder"
    off = f"{stack}.layers.0.self_attention.1:zero"
    traced = session.examine(selected(f"?{urlencode({'source': text, 'panel': 'lab', 'edit': off})}"), [])
    lab, original = lab_of(traced, ""), traced.original
    inputs, predicted = Inputs.of(original), torch.tensor([original.predicted_ids])
    ablation = head_ablation(original.model, inputs, predicted)
    expected = [aligned(-value, 3) for value in ablation.loss_change.flatten().tolist()]
    assert [head.change for row in lab.rows for head in row.heads] == expected
    assert lab.change is not None
    assert float(lab.change.loss) == pytest.approx(ablation.loss, abs=1e-3)
    assert float(lab.change.loss_after) == pytest.approx(ablation.loss + float(ablation.loss_change[0, 1]), abs=2e-3)
    assert lab.change.output is not None
    assert lab.change.output.before


def test_page_shows_chips_and_no_false_alarm(session: Session) -> None:
    for view in ("&panel=lab", "&part=decoder&layer=1&sublayer=cross_attention&head=1", "&part=decoder&layer=1"):
        html = render_page(session, f"{FORCED}&off={HEAD.text}{view}").html
        assert "decoder layer 1 cross-attention, head 1: zero" in html
        assert "✗" not in html, view
    matrix = f"{FORCED}&off={HEAD.text}&part=decoder&layer=1&sublayer=cross_attention&head=1&stage=context"
    html = render_page(session, matrix).html
    assert "was replaced" in html
    assert "✗" not in html


@pytest.mark.parametrize(
    ("task", "query"),
    [
        ("translation", f"{FORCED}&step=2"),
        ("masked", "?source=the+[MASK]+cat&step=2"),
        ("language", "?source=the+old+cat&step=1"),
    ],
)
def test_heads_are_measured_by_the_selected_word_alone(
    task: str, query: str, tiny: TinyRun, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tiny.run if task == "translation" else made(tmp_path_factory, task).run
    session = Session(folder, WebSettings())
    traced = session.examine(selected(f"{query}&panel=lab&effect=word"), [])
    original, step = traced.original, traced.selection.step
    assert step is not None
    ablation = head_ablation(original.model, Inputs.of(original), torch.tensor([original.predicted_ids]))
    lab = lab_of(traced, "")
    expected = [aligned(value, 3) for value in ablation.change[:, :, 0, step].flatten().tolist()]
    assert [head.change for row in lab.rows for head in row.heads] == expected
    word = original.sides[-1].vocabulary.tokens([original.predicted_ids[step]])[0]
    assert lab.measured == f"{Label(word, 'vocabulary').plain}, in nats"
    assert [one.current for one in lab.effects] == [False, True]
    file = b"".join(export_panel(session, f"{query}&panel=lab&effect=word", "npz").pieces)
    saved = np.load(BytesIO(file))["log_probability_change"]
    assert saved == pytest.approx(ablation.change[:, :, 0, step].double().numpy(), abs=1e-6)
    whole = lab_of(replace(traced, selection=selected(lab.effects[0].address)), "")
    assert "in nats a token" in whole.measured
    assert whole.rows != lab.rows


def test_step_without_prediction_has_heads_by_all_words_only(tmp_path_factory: pytest.TempPathFactory) -> None:
    session = Session(made(tmp_path_factory, "masked").run, WebSettings())
    traced = session.examine(selected("?source=the+[MASK]+cat&step=1&panel=lab&effect=word"), [])
    lab = lab_of(traced, "")
    assert lab.effects == ()
    assert lab.measured == "the hidden words, in nats a token"
