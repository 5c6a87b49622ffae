"""One head over the training: each point is its checkpoint's own, and the series comes a few at a time."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from explain.page_reader import Reader
from glassformer.web.explorer import learning
from glassformer.web.explorer.learning import gold_links, training_series
from glassformer.web.explorer.page import render_page
from glassformer.web.explorer.runs import ExploredRun
from glassformer.web.explorer.selection import parse_address
from glassformer.web.explorer.session import Session
from glassformer.web.settings import WebSettings
from tiny_run import TinyRun

FORCED = "?source=the+old+cat+sleeps&target=le+vieux+chat+dort&mode=forced"
HEAD = "&part=decoder&layer=1&sublayer=cross_attention&head=1"
PATH = "decoder.layers.1.cross_attention"


@pytest.fixture
def session(tiny: TinyRun) -> Session:
    return Session(tiny.run, WebSettings())


def series(session: Session, query: str) -> Any:
    view = training_series(session, session.examine(parse_address(query)[0], []))
    for _ in range(20):
        if not view.missing:
            return view
        view = training_series(session, session.examine(parse_address(query)[0], []))
    raise AssertionError("the series does not end")


def test_points_are_those_of_the_checkpoints(session: Session) -> None:
    view = series(session, f"{FORCED}{HEAD}&panel=training")
    assert [row.label for row in view.rows] == ["step 40", "step 80", "step 120", "step 160"]
    for row, one in zip(view.rows, session.checkpoints(), strict=True):
        example = session.examine(parse_address(f"{FORCED}&checkpoint={one.name}")[0], []).example
        weights = example.trace[f"{PATH}.weights"][0, 1].double()
        entropy = float(-(weights * weights.clamp_min(1e-300).log()).sum(-1).mean())
        ids = example.predicted_ids
        rows = example.trace["output_projection.log_probabilities"][0].double()
        loss = -sum(float(rows[place, token]) for place, token in enumerate(ids)) / len(ids)
        found = dict(zip(view.columns, row.values, strict=True))
        assert float(found["entropy of a row, nats"]) == pytest.approx(entropy, abs=0.006)
        assert float(found["loss of this text, nats a token"]) == pytest.approx(loss, abs=0.006)
    assert view.summary.startswith("Weight on the aligned word: ")
    assert sum(tile.current for tile in view.tiles) == 1


def test_series_is_computed_a_checkpoint_at_a_time_and_remembered(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "SECONDS", 0.0)
    query = f"{FORCED}{HEAD}&panel=training"
    for done in (1, 2, 3):
        html = render_page(session, query).html
        assert "data-again" in html
        assert f"{done} of 4 checkpoints" in Reader(html).text
    assert "data-again" not in render_page(session, query).html
    monkeypatch.setattr(learning, "load_explored", None)  # nothing is loaded again
    other_head = query.replace("head=1", "head=0")
    assert "data-again" not in render_page(session, other_head).html


def test_unreadable_checkpoint_is_a_tile_with_the_reason(tiny: TinyRun, tmp_path: Path) -> None:
    shutil.copytree(tiny.run, tmp_path / "run")
    session = Session(tmp_path / "run", WebSettings())
    known = session.checkpoints()
    damaged = next(place for place, one in enumerate(known) if "used" not in one.label)
    weights = known[damaged].path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    view = series(session, f"{FORCED}{HEAD}&panel=training")
    assert view.tiles[damaged].problem.startswith("model.safetensors is damaged")
    assert [bool(tile.picture) for tile in view.tiles] == [place != damaged for place in range(4)]
    assert view.rows[damaged].problem


def test_many_checkpoints_are_chosen_evenly_with_both_ends(session: Session) -> None:
    many = [learning.CheckpointChoice(str(number), str(number), Path()) for number in range(100)]
    chosen, skipped = learning._chosen(many)
    assert (len(chosen), skipped) == (24, 76)
    assert (chosen[0], chosen[-1]) == (many[0], many[-1])


def test_text_beyond_the_limit_is_refused_in_each_tile(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "LARGEST", 10)
    view = series(session, f"{FORCED}&panel=training")
    assert all("too large for a series" in tile.problem for tile in view.tiles)
    assert "needs two checkpoints" in view.summary


def test_gold_links_are_read_beside_the_validation_text(tmp_path: Path) -> None:
    texts = {"en": "a b\nthe cat sleeps\n", "fr": "c d\nle chat dort\n", "align": "0-1 1-0\n0-0 1-1 2-2\n"}
    for suffix, text in texts.items():
        (tmp_path / f"validation.{suffix}").write_text(text, encoding="utf-8")
    settings = f'[data]\nsource = "en"\ntarget = "fr"\nvalidation = ["{tmp_path}/validation"]\n'
    (tmp_path / "config.toml").write_text(settings, encoding="utf-8")
    run = ExploredRun("run", tmp_path)
    assert gold_links(run, "the cat sleeps", "le chat dort") == {(0, 0), (1, 1), (2, 2)}
    assert gold_links(run, "the cat sleeps", "le chat") is None
    (tmp_path / "validation.align").write_text("0-0\n", encoding="utf-8")
    assert gold_links(run, "the cat sleeps", "le chat dort") is None
