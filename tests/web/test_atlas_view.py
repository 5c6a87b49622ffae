"""The atlas of heads: its numbers are those of the analyses, and its job gives way, rests, stops and goes on."""

import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
import torch

from explain.small_examples import EXAMPLES
from glassformer.alignment import GoldLinks, read_pharaoh
from glassformer.explain.analysis.attention_measures import distance, entropy
from glassformer.explain.analysis.head_atlas import HeadAtlas, sentence_importance
from glassformer.explain.analysis.heads import head_importance
from glassformer.explain.analysis.interventions import Inputs, attentions
from glassformer.explain.examples.text import examine
from glassformer.predict.alignment import links_of_heads
from glassformer.web.explorer.atlas_job import MAX_JOBS, PATIENCE_SECONDS, AtlasJob, AtlasJobs
from glassformer.web.explorer.atlas_request import MAX_SENTENCES, USUAL_SENTENCES, control_atlas
from glassformer.web.explorer.page import render_page
from glassformer.web.explorer.run_text import RunSentence, RunText
from glassformer.web.explorer.selection import parse_address
from glassformer.web.explorer.session import Session
from glassformer.web.settings import WebSettings
from tiny_run import TinyRun
from tiny_tasks import made

PAIRS = [
    ("the old cat sleeps", "le vieux chat dort"),
    ("she sings", "elle chante"),
    ("the dog sleeps", "le chien dort"),
]
FIELDS = {"source": "the old cat sleeps", "target": "le vieux chat dort", "mode": "forced", "panel": "atlas"}
KINDS = [name for name in EXAMPLES if name not in ("vit", "series")]


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def session(tiny: TinyRun) -> Session:
    return Session(tiny.run, WebSettings())


def html_of(session: Session, **fields: Any) -> str:
    page = render_page(session, urlencode({**FIELDS, **fields}))
    assert page.status == 200
    return page.html


def finish(session: Session) -> None:
    while session.jobs.step():
        pass


def rows_of(html: str) -> dict[str, list[float]]:
    """Numbers of each head, by its path."""
    found = {}
    for row in re.findall(r"<tr data-head=.*?</tr>", html, re.DOTALL):
        name = re.search('data-head="([^"]*)"', row)
        assert name is not None
        found[name[1]] = [float(value) for value in re.findall(r'<td data-value="([^"]+)"', row)]
    return found


def test_numbers_are_means_over_the_sentences(session: Session, tiny: TinyRun) -> None:
    texts = "\n".join(f"{source} ||| {target}" for source, target in PAIRS)
    html_of(session, texts=texts)
    finish(session)
    html = html_of(session, texts=texts)
    assert "3 sentences of the field below." in html
    examples = [examine(tiny.translator, *pair) for pair in PAIRS]
    rows = rows_of(html)
    assert len(rows) == 2 * (1 + 2 + 2)
    for path in attentions(examples[0].model):
        for head in range(2):
            matrices = [one.trace[f"{path}.weights"][0, head].double().numpy() for one in examples]
            found = rows[f"{path}.{head}"]
            assert found[0] == pytest.approx(np.mean([entropy(one) for one in matrices]), abs=1e-6)
            assert found[1] == pytest.approx(np.mean([distance(one) for one in matrices]), abs=1e-6)
            importance = [sentence_importance(one)[path, head] for one in examples]
            assert found[2] == pytest.approx(np.mean(importance), rel=1e-4)


def test_importance_is_that_of_the_sentences_as_one_batch(tiny: TinyRun) -> None:
    """Rows of unequal length, with padding: what ``head_importance`` gives for all at once."""
    atlas, model = HeadAtlas(), tiny.translator.models[0]
    examples = [examine(tiny.translator, *pair, keep="*.weights") for pair in PAIRS]
    for one in examples:
        atlas.add(one)
    sides = [[one.source_ids for one in examples], [one.target_ids for one in examples]]
    sides.append([one.predicted_ids for one in examples])
    padded = [torch.nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in side], True) for side in sides]
    masks = [
        torch.nn.utils.rnn.pad_sequence([torch.ones(len(ids), dtype=torch.bool) for ids in side], True)
        for side in sides[:2]
    ]
    expected = head_importance(model, Inputs(padded[0], padded[1], masks[0], masks[1]), padded[2]).importance
    found = [record.importance for record in atlas.records()]
    assert found == pytest.approx(expected.flatten().tolist(), rel=1e-3, abs=1e-7)


def test_error_rates_are_those_over_the_corpus(tiny: TinyRun, tmp_path: Path) -> None:
    shutil.copytree(tiny.run, tmp_path / "run")
    for place, suffix in enumerate(("en", "fr")):
        (tmp_path / f"val.{suffix}").write_text("".join(f"{pair[place]}\n" for pair in PAIRS), encoding="utf-8")
    gold = ["0-0 2-2 1?1", "0-0 1-1", "0-0 1-1 2-2"]
    (tmp_path / "val.align").write_text("\n".join(gold) + "\n", encoding="utf-8")
    config = tmp_path / "run" / "config.toml"
    text = config.read_text(encoding="utf-8").replace(str(tiny.folder / "validation"), str(tmp_path / "val"))
    config.write_text(text, encoding="utf-8")
    session = Session(tmp_path / "run", WebSettings())
    html_of(session)
    finish(session)
    html = html_of(session)
    assert "3 sentences of the run&#39;s validation text." in html
    assert "those of 3 sentences with gold links" in html
    sure = [read_pharaoh("0-0 2-2"), read_pharaoh("0-0 1-1"), read_pharaoh("0-0 1-1 2-2")]
    possible = [sure[0] | {(1, 1)}, *sure[1:]]
    rows = rows_of(html)
    for one in links_of_heads(tiny.translator, *map(list, zip(*PAIRS, strict=True))):
        if one.head is not None:
            found = rows[f"decoder.layers.{one.layer}.cross_attention.{one.head}"][3:]
            assert found == pytest.approx([one.error_rate(sure, shifted, possible) for shifted in (False, True)])
    assert "Aligns best: decoder layer" in html


def test_error_rates_of_both_readings_are_kept_apart(tiny: TinyRun) -> None:
    sides = [(tiny.folder / f"validation.{suffix}").read_text(encoding="utf-8").splitlines() for suffix in ("en", "fr")]
    gold, atlas = [], HeadAtlas()
    for source, target in zip(*sides, strict=True):
        size = min(len(source.split()), len(target.split()))
        links = frozenset((place, place) for place in range(size))
        gold.append(links)
        atlas.add(examine(tiny.translator, source, target, keep="*.weights"), GoldLinks(links, links))
    records = {(one.path, one.head): one for one in atlas.records()}
    differs = False
    for one in links_of_heads(tiny.translator, *sides):
        if one.head is not None:
            record = records[f"decoder.layers.{one.layer}.cross_attention", one.head]
            assert record.naive_error_rate == one.error_rate(gold)
            assert record.shifted_error_rate == one.error_rate(gold, shifted=True)
            differs = differs or record.naive_error_rate != record.shifted_error_rate
    assert differs


def test_heads_are_sorted_by_the_column_of_the_address(session: Session) -> None:
    html_of(session, n=2)
    finish(session)
    plain = list(rows_of(html_of(session, n=2)))
    for place, name in enumerate(("entropy", "distance", "importance")):
        up = rows_of(html_of(session, n=2, order=name))
        down = rows_of(html_of(session, n=2, order=f"-{name}"))
        assert [row[place] for row in up.values()] == sorted(row[place] for row in up.values())
        assert [row[place] for row in down.values()] == sorted((row[place] for row in down.values()), reverse=True)
        assert set(up) == set(down) == set(plain)
        assert html_of(session, n=2, order=f"-{name}").count('aria-sort="descending"') == 1
    assert "is no column" in html_of(session, n=2, order="beauty")
    assert list(rows_of(html_of(session, n=2, order="beauty"))) == plain


def test_head_leads_to_its_view(session: Session) -> None:
    html_of(session, n=1)
    finish(session)
    html = html_of(session, n=1)
    address = re.search(r'<a href="([^"]*)" data-key="head-decoder.layers.1.cross_attention.1"', html)
    assert address is not None
    page = render_page(session, address[1].replace("&amp;", "&"))
    assert "Cross-attention · decoder, layer 1 · head 1" in page.html


@pytest.mark.parametrize(("count", "expected"), [("0", 1), ("99999", MAX_SENTENCES), ("7", 7)])
def test_number_of_sentences_is_bounded_with_a_note(session: Session, count: str, expected: int) -> None:
    texts = "\n".join(["she sings"] * 300)
    html = html_of(session, n=count, texts=texts)
    assert f'max="{expected}"' in html.partition("<progress")[2].partition(">")[0]
    assert ("is outside 1 to 200" in html) == (count != "7")


@pytest.mark.parametrize("count", ["x", "-1", "1.5"])
def test_unreadable_number_is_the_usual_one(session: Session, count: str) -> None:
    html = html_of(session, n=count, texts="\n".join(["she sings"] * 50))
    assert "cannot be read" in html
    assert f'max="{USUAL_SENTENCES}"' in html


def test_sentences_that_cannot_be_read_are_left_out_with_a_reason(tiny: TinyRun) -> None:
    session = Session(tiny.run, WebSettings(max_tokens=30))
    texts = "\n".join(["she sings", "cat " * 200, "", "||| le chat", "the \U0001f680 sleeps"])
    html_of(session, texts=texts)
    finish(session)
    html = html_of(session, texts=texts)
    assert "1 sentence is left out: the text has" in html
    assert len(rows_of(html)) == 10


def test_run_without_validation_text_measures_the_sentence_of_the_page(tiny: TinyRun, tmp_path: Path) -> None:
    shutil.copytree(tiny.run, tmp_path / "run")
    (tmp_path / "run" / "config.toml").unlink()
    session = Session(tmp_path / "run", WebSettings())
    html_of(session)
    finish(session)
    assert "1 sentence of this page" in html_of(session)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_has_measures(kind: str) -> None:
    example, atlas = EXAMPLES[kind](), HeadAtlas()
    atlas.add(example)
    atlas.add(example)
    for record in atlas.records():
        weights = example.trace[f"{record.path}.weights"][0, record.head].double().numpy()
        assert record.entropy == pytest.approx(entropy(weights))
        assert record.distance == pytest.approx(distance(weights))
        assert record.naive_error_rate is None
        assert record.importance is None or record.importance >= 0
    assert len(atlas.records()) == sum(one.n_heads for one in attentions(example.model).values())


@pytest.mark.parametrize("task", ["language", "masked", "classification", "tagging"])
def test_atlas_of_a_run_of_every_task_of_texts(task: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    tiny = made(tmp_path_factory, task)
    source = "the [MASK] runs." if task == "masked" else "the dog runs."
    fields = {"source": source, "panel": "atlas", "n": "4"}
    session = Session(tiny.run, WebSettings())
    render_page(session, urlencode(fields))
    finish(session)
    html = render_page(session, urlencode(fields)).html
    rows = rows_of(html)
    assert len(rows) == 2 * (2 if task == "language" else 1)
    predicts = task in ("language", "masked")
    assert all(len(row) == 2 + predicts for row in rows.values())
    assert ("Importance needs a model" in html) != predicts
    assert "gold links" not in html
    found = RunText(tiny.run).validation(task, 4)
    assert len(found) == (0 if task == "language" else 4)
    assert ("validation text." in html) == bool(found)


def test_second_request_joins_the_job_of_the_first(session: Session) -> None:
    html_of(session, n=3)
    session.jobs.step()
    html = html_of(session, n=3)
    assert "1 of 3 sentences" in html
    assert len(session.jobs._jobs) == 1
    assert len(rows_of(html)) == 10
    html_of(session, n=3, order="entropy")
    assert len(session.jobs._jobs) == 1
    html_of(session, n=2)
    assert len(session.jobs._jobs) == 2


def test_job_that_is_stopped_keeps_what_it_measured_and_goes_on(session: Session) -> None:
    query = urlencode({**FIELDS, "n": 4})
    html_of(session, n=4)
    session.jobs.step()
    control_atlas(session, query, "cancel")
    assert not session.jobs.step()
    html = html_of(session, n=4)
    assert "Stopped after 1 of 4 sentences" in html
    assert "data-live" not in html
    assert len(rows_of(html)) == 10
    control_atlas(session, query, "resume")
    finish(session)
    assert "4 sentences of" in html_of(session, n=4)


def job(clock: Clock, count: int, seconds: float = 0.0) -> AtlasJob:
    example = EXAMPLES["gpt"]()

    def examined(sentence: RunSentence) -> Any:
        clock.seconds += seconds
        return example

    return AtlasJob([RunSentence(f"text {number}") for number in range(count)], examined, clock)


def test_job_rests_when_no_page_asks_and_goes_on_when_one_does() -> None:
    clock = Clock()
    jobs = AtlasJobs(clock)
    one = jobs.find("key", lambda: job(clock, 5))
    assert jobs.step()
    clock.seconds += PATIENCE_SECONDS + 1
    assert one.resting
    assert not jobs.step()
    assert (one.state, one.done) == ("running", 1)
    assert jobs.find("key", lambda: job(clock, 5)) is one
    assert jobs.step()
    assert one.done == 2


def test_job_ends_at_the_limit_of_time() -> None:
    clock = Clock()
    one = job(clock, 50, seconds=100.0)
    while one.state == "running":
        one.step()
    assert one.state == "expired"
    assert one.done == 4


def test_jobs_in_memory_are_bounded() -> None:
    clock = Clock()
    jobs = AtlasJobs(clock)
    for key in range(MAX_JOBS + 3):
        jobs.find(key, lambda: job(clock, 1))
    assert len(jobs._jobs) == MAX_JOBS


def test_page_without_a_job_computes_nothing(session: Session) -> None:
    render_page(session, "?source=she+sings")
    assert session.jobs.active == []
    selection, _ = parse_address("?panel=atlas&n=3&texts=a%0Ab&order=-entropy")
    assert (selection.sentences, selection.texts, selection.order) == (3, "a\nb", "-entropy")
