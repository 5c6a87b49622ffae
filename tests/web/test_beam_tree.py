"""The beam tree accounts for every hypothesis, and tells search errors from model errors."""

from collections import Counter

import pytest

from glassformer.generate import TranslationDecodingConfig
from glassformer.predict.translator import Translator
from glassformer.web.explorer.models import ExploredTranslator
from glassformer.web.explorer.page import render_page
from glassformer.web.explorer.panels.beam_tree import BeamSearch, search_of, view_of
from glassformer.web.explorer.selection import Selection
from glassformer.web.explorer.session import Session
from glassformer.web.settings import WebSettings
from tiny_run import TinyRun

SOURCES = ["the old cat sleeps", "the young women love the red flower", "she sings"]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("beam_size", [2, 4])
def test_every_hypothesis_is_accounted_for(tiny: TinyRun, source: str, beam_size: int) -> None:
    search = search_of(tiny.translator, source, beam_size)
    counts = Counter(node.state for node in search.nodes)
    assert counts.total() == len(search.nodes)
    assert set(counts) <= {"continues", "ended", "pruned", "open"}
    children = Counter(node.parent for node in search.nodes)
    for index, node in enumerate(search.nodes):
        if children[index]:
            assert node.state == "continues"
        if node.state == "ended":
            assert node.tokens[-1] == tiny.translator.symbols.end
    for step in {node.step for node in search.nodes}:
        alive = [node for node in search.nodes if node.step == step and node.state in ("continues", "open")]
        assert len(alive) <= beam_size


@pytest.mark.parametrize("source", SOURCES)
def test_result_is_a_path_of_the_tree_with_its_score(tiny: TinyRun, source: str) -> None:
    search = search_of(tiny.translator, source, 4)
    plain = tiny.translator.hypotheses([source], beam_size=4, n_best=4)[0]
    assert [one.tokens for one in search.found] == [one.hypothesis.tokens for one in plain]
    for found in search.found:
        if found.finish_reason != "end":
            continue
        tokens = (*found.tokens, tiny.translator.symbols.end)
        [node] = [node for node in search.nodes if node.tokens == tokens]
        assert node.state == "ended"
        assert node.total == pytest.approx(found.log_prob, abs=1e-4)
    for node in search.nodes:
        before = search.nodes[node.parent] if node.parent >= 0 else None
        assert node.tokens[:-1] == (before.tokens if before else ())
        assert node.log_prob <= 1e-6


def verdict(translator: Translator, search: BeamSearch, target: str) -> str:
    selection = Selection(source=SOURCES[0], target=target, mode="forced")
    example = ExploredTranslator(translator).example(selection, target, None)
    return view_of(search, translator, example, selection).verdict


def test_search_error_and_model_error(tiny: TinyRun) -> None:
    translator = tiny.translator
    assert isinstance(translator.decoding, TranslationDecodingConfig)
    search = search_of(translator, SOURCES[0], 4)
    best = translator.tokenizers.target.decode(search.found[0].tokens)
    assert verdict(translator, search, best).startswith("The text in the target is what the search found")
    assert verdict(translator, search, "chat chat chat chat").startswith("Model error")
    worst = BeamSearch(search.nodes, search.found[-1:], 4)
    assert search.found[-1].score < search.found[0].score
    assert verdict(translator, worst, best).startswith("Search error")


def test_page_lists_every_hypothesis(tiny: TinyRun) -> None:
    session = Session(tiny.run, WebSettings())
    html = render_page(session, "?source=the+old+cat+sleeps&panel=beam").html
    search = next(iter(session._searches.values()))
    assert html.count('class="node ') == len(search.nodes)
    assert f"{len(search.nodes):,} hypotheses were considered" in html
    assert "There is no panel" in render_page(session, "?source=she+sings&panel=nothing").html


@pytest.mark.parametrize("source", SOURCES)
def test_beam_of_one_is_greedy_search(tiny: TinyRun, source: str) -> None:
    search = search_of(tiny.translator, source, 1)
    [greedy] = tiny.translator.hypotheses([source], beam_size=1, n_best=1)[0]
    path = [node for node in search.nodes if node.state != "pruned"]
    assert [node.tokens[-1] for node in path][: len(greedy.hypothesis.tokens)] == greedy.hypothesis.tokens
    assert [node.step for node in path] == list(range(len(path)))
    assert path[-1].state in ("ended", "open")
    assert path[-1].total == pytest.approx(sum(node.log_prob for node in path), abs=1e-5)
    if greedy.hypothesis.finish_reason == "end":
        assert path[-1].total == pytest.approx(greedy.hypothesis.log_prob, abs=1e-4)
    assert Counter(node.state for node in search.nodes)["continues"] == len(path) - 1
    for node in search.nodes:
        assert node.parent == -1 or search.nodes[node.parent].state == "continues"


@pytest.mark.parametrize(
    ("query", "size"), [("", 2), ("&beam=1", 1), ("&beam=5", 5), ("&beam=0", 1), ("&beam=999", 16)]
)
def test_beam_size_of_the_address(tiny: TinyRun, query: str, size: int) -> None:
    html = render_page(Session(tiny.run, WebSettings()), f"?source=the+old+cat+sleeps&panel=beam{query}").html
    assert f"considered with a beam of {size}:" in html
    assert ("is outside 1 to 16" in html) == (query in ("&beam=0", "&beam=999"))
