"""``glassformer.explore`` in a notebook: a frame with the offline page, which requests nothing."""

import re
from html import unescape
from typing import Any

import pytest

import glassformer
from glassformer.errors import DataError
from glassformer.explain.analysis.interventions import switch_off
from glassformer.predict.translator import Translator
from tiny_run import TinyRun
from web.conftest import PATIENCE

SOURCE, TARGET = "the old cat sleeps", "le vieux chat dort"


def frame_of(page: Any) -> str:
    """The document in the frame that a notebook displays."""
    found = re.fullmatch(
        r'<iframe sandbox="allow-scripts" style="[^"]*" srcdoc="([^"]*)"></iframe>', page._repr_html_()
    )
    assert found is not None
    return unescape(found[1])


def test_notebook_displays_the_report(tiny: TinyRun) -> None:
    shown = {
        "translator": glassformer.explore(tiny.translator, SOURCE, TARGET),
        "example": glassformer.explore(glassformer.examine(tiny.translator, SOURCE, TARGET)),
        "run": glassformer.explore(tiny.run, SOURCE, TARGET),
    }
    assert len({frame_of(page) for page in shown.values()}) == 1
    assert frame_of(shown["run"]) == glassformer.report(tiny.run, SOURCE, TARGET)


def test_run_without_a_text_shows_its_own_sentence(tiny: TinyRun) -> None:
    first = glassformer.explore(tiny.translator)
    assert first == glassformer.explore(tiny.run)
    assert "checks passed" in first


def test_edits_of_an_example_are_in_its_page(tiny: TinyRun) -> None:
    edits = switch_off(tiny.translator.models[0], {"decoder.layers.1.cross_attention": [0, 1]})
    plain, edited = (glassformer.examine(tiny.translator, SOURCE, TARGET, edits=one) for one in (None, edits))
    assert glassformer.explore(plain) != glassformer.explore(edited)


def test_what_has_no_words_is_refused(tiny: TinyRun) -> None:
    example = glassformer.examine(tiny.translator, SOURCE, TARGET)
    with pytest.raises(DataError, match="is a trace, which has no words; give an example"):
        glassformer.explore(example.trace)  # type: ignore[arg-type]
    one = tiny.translator
    unnamed = Translator(one.models, one.tokenizers, one.decoding)
    with pytest.raises(DataError, match="was not loaded from a run"):
        glassformer.explore(unnamed)
    with pytest.raises(DataError, match="without text"):
        glassformer.explore(one, second=TARGET)


def test_frame_of_a_notebook_opens_and_requests_nothing(tiny: TinyRun, browser: Any) -> None:
    page = glassformer.explore(tiny.translator, SOURCE, TARGET)
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    tab = context.new_page()
    requests: list[str] = []
    complaints: list[str] = []
    tab.on("request", lambda request: requests.append(request.url))
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.set_content(f"<!doctype html><title>notebook</title>{page._repr_html_()}")
    frame = tab.frame_locator("iframe")
    assert SOURCE in frame.locator("h1").inner_text()
    assert frame.locator(".verdict.passed").count() == 1
    assert [url for url in requests if not url.startswith(("about:", "data:"))] == []
    assert complaints == []
    context.close()
