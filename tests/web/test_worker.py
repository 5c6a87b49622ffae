"""The worker: who waits for it, and what runs while nobody does."""

from collections.abc import Callable
from threading import Event
from typing import Any
from urllib.parse import urlencode

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
