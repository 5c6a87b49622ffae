"""The worker: who waits for it, and what runs while nobody does."""

from collections.abc import Callable
from threading import Event
from typing import Any
from urllib.parse import urlencode

import pytest

from glassformer.web.app import create_app
from glassformer.web.explorer.page import render_page
from glassformer.web.explorer.session import Session
from glassformer.web.settings import WebSettings
from glassformer.web.worker import Worker
from tiny_run import TinyRun


def test_job_waits_until_it_starts() -> None:
    worker, started, go = Worker(), Event(), Event()

    def block() -> None:
        started.set()
        go.wait(60)

    worker.submit(block)
    assert started.wait(60)
    assert not worker.has_waiting_jobs
    worker.submit(lambda: None, background=True)
    assert not worker.has_waiting_jobs
    last = worker.submit(lambda: worker.has_waiting_jobs)
    assert worker.has_waiting_jobs
    go.set()
    assert last.result(60) is False


def test_analysis_does_not_give_way_to_the_sentences_of_an_atlas(tiny: TinyRun) -> None:
    explorer: Any = create_app(tiny.run, WebSettings()).state.explorer
    texts = "\n".join(f"the cat sleeps {'and sings ' * number}||| le chat" for number in range(1, 60))
    query = urlencode({"source": "the cat", "panel": "atlas", "texts": texts, "n": 200})

    def in_worker(job: Callable[[Session], Any]) -> Any:
        return explorer.worker.submit(lambda: explorer._answer(job)).result(120)

    assert in_worker(lambda session: render_page(session, query).status) == 200
    for _ in range(3):
        assert in_worker(lambda session: (bool(session.jobs.active), session._results.is_waited_for())) == (True, False)


def test_interrupted_view_is_asked_for_again_by_the_page_and_incomplete_without_it(
    tiny: TinyRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    testclient = pytest.importorskip("starlette.testclient", reason="httpx is not installed: pip install httpx")
    app = create_app(tiny.run, WebSettings(token="key"))
    client = testclient.TestClient(app, base_url="http://127.0.0.1")
    fields = {"source": "the cat sleeps", "panel": "lab", "edit": "decoder.layers.1.cross_attention.1:zero"}
    client.get("/", params={**fields, "token": "key"}, headers={"x-fragment": "first"})
    monkeypatch.setattr("glassformer.web.explorer.traced.SMALL", 0)
    store = app.state.explorer.session.result(60)._results
    monkeypatch.setattr(store, "is_waited_for", lambda: True)
    store._results.clear()
    answers = {
        part: client.get("/", params=fields, headers={"x-fragment": part} if part else {})
        for part in ("whole", "first", "")
    }
    assert (answers["whole"].status_code, answers["whole"].text) == (503, "Another view came first; ask again.\n")
    for part in ("first", ""):
        assert answers[part].status_code == 200
        assert "data-pending" in answers[part].text
    monkeypatch.setattr(store, "is_waited_for", lambda: False)
    whole = client.get("/", params=fields, headers={"x-fragment": "whole"})
    assert whole.status_code == 200
    assert "data-pending" not in whole.text
