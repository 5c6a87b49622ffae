"""The live page of a notebook: requests without a port, and the frame with its scripts in Chromium."""

import base64
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlencode

import pytest

import glassformer
from glassformer.explain.tour import Page
from glassformer.web.explorer.page import render_page
from glassformer.web.explorer.session import Session
from glassformer.web.settings import WebSettings
from tiny_run import TinyRun
from web.conftest import PATIENCE, SOURCE, TARGET

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install 'glassformer[web]'")
from glassformer.web.app import create_app
from glassformer.web.in_process import LocalClient
from glassformer.web.notebook_frame import frame_document

DELIVER = """([head, body]) => {
  const bytes = Uint8Array.from(atob(body), one => one.charCodeAt(0));
  deliver(head, [new DataView(bytes.buffer)]);
}"""
ADDRESS = f"?{urlencode({'source': SOURCE, 'target': TARGET, 'mode': 'forced'})}"


@pytest.fixture(scope="module")
def client(tiny: TinyRun) -> LocalClient:
    settings = WebSettings()
    return LocalClient(create_app(tiny.run, settings), settings)


def test_answers_are_those_of_the_application(client: LocalClient) -> None:
    page = client.submit(ADDRESS, headers={"x-fragment": "whole"})[0].result()
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")
    names = client.submit("checkpoints?run=")[0].result()
    assert b"step_" in names.body
    assert client.submit("nowhere")[0].result().status == 404
    assert client.submit("atlas/nothing", "POST")[0].result().status == 422
    place = "part=decoder&layer=0&sublayer=cross_attention&head=0&stage=weights"
    file = client.submit(f"export/csv{ADDRESS}&{place}")[0].result()
    assert file.headers["content-disposition"].endswith('.csv"')


def test_request_that_nobody_waits_for_is_dropped(client: LocalClient) -> None:
    blocked = client.submit(f"{ADDRESS}&step=1", headers={"x-fragment": "whole"})
    answer, gone = client.submit(f"{ADDRESS}&step=2", headers={"x-fragment": "whole"})
    gone.set()
    assert blocked[0].result().status == 200
    assert answer.result().status in (200, 499)  # 499 unless it had begun


def test_document_can_load_nothing_and_has_every_script(client: LocalClient) -> None:
    document = frame_document(client, ADDRESS)
    assert not re.search(r'(src|href)="(static|shades|https?:)', document)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', document)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'")
    assert "form-action 'none'; base-uri 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    assert "http" not in policy[1]
    assert 'data-address="?source=the+old+cat+sleeps&amp;' in document


@pytest.fixture
def frame(client: LocalClient, browser: Any) -> Iterator[tuple[Any, Callable[[str], None]]]:
    """The widget's script with a channel to ``client``: its frame, and a function that waits for a condition in it."""
    folder = Path(glassformer.__file__).parent / "web" / "explorer" / "static"
    script = (folder / "widget.js").read_text(encoding="utf-8").replace("export default { render };", "")
    tab = browser.new_page(viewport={"width": 1300, "height": 900})
    tab.set_default_timeout(PATIENCE)
    complaints: list[str] = []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    requests: list[str] = []
    tab.on("request", lambda request: requests.append(request.url))
    tab.set_content(
        f"<div id=place></div><script>{script}\nconst sent = [];\nlet deliver;\n"
        "const model = { get: name => ({ document: text, height: 860 })[name], send: message => sent.push(message),"
        " on: (event, call) => { deliver = call; }, off() {} };\nlet text = '';</script>"
    )
    tab.evaluate(
        "given => { text = given; void render({ model, el: document.getElementById('place') }); }",
        frame_document(client, ADDRESS),
    )
    tab.frame_locator("iframe").locator("html[data-folds]").wait_for(state="attached")  # its scripts have run
    waiting: dict[str, Any] = {}

    def pump() -> None:
        for message in tab.evaluate("sent.splice(0)"):
            if message.get("cancel"):
                if message["id"] in waiting:
                    waiting.pop(message["id"])[1].set()
            else:
                waiting[message["id"]] = client.submit(message["address"], message["method"], message["headers"])
        for number, (answer, _) in [*waiting.items()]:
            if answer.done():
                del waiting[number]
                one = answer.result()
                head = {"id": number, "status": one.status, "headers": one.headers}
                tab.evaluate(DELIVER, [head, base64.b64encode(one.body).decode()])

    def wait(condition: str) -> None:
        end = time.monotonic() + PATIENCE / 1000
        while not tab.frames[1].evaluate(condition):
            assert time.monotonic() < end, (condition, complaints)
            pump()
            tab.wait_for_timeout(20)

    yield tab.frames[1], wait
    assert complaints == []
    assert [one for one in requests if not one.startswith(("about:", "data:"))] == []
    tab.close()


def test_page_lives_in_a_frame_without_a_server(frame: tuple[Any, Callable[[str], None]], tiny: TinyRun) -> None:
    page, wait = frame
    page.locator(".map a[aria-label^='Multi-head attention']").last.click()
    wait("document.body.dataset.level === 'head'")
    page.locator(".stage .head").nth(1).click()
    wait("document.querySelector('h1').textContent.includes('head 1')")
    page.locator(".card", has_text="attention weights").click()
    wait("document.body.dataset.level === 'matrix'")
    page.locator(".numbers td a").first.click()
    wait("document.body.dataset.level === 'cell'")
    assert page.locator(".cell .check").inner_text().startswith("✓")
    page.locator("[name=target]").fill("le chat")
    wait("document.querySelector('.steps').textContent.replace(/<.*?>|[^a-z]/g, '') === 'lechat'")
    page.locator("#theme").click()
    assert page.evaluate("document.documentElement.dataset.theme") in ("light", "dark")


def test_numbers_of_the_frame_are_those_of_the_session(frame: tuple[Any, Callable[[str], None]], tiny: TinyRun) -> None:
    page, _ = frame
    shown = page.evaluate("[...document.querySelectorAll('.candidates li')].map(one => one.dataset.probability)")
    html = render_page(Session(tiny.run, WebSettings()), ADDRESS).html
    assert shown == re.findall(r'data-probability="([^"]*)"', html)


def test_explore_is_live_with_anywidget_and_a_report_for_examples(tiny: TinyRun) -> None:
    pytest.importorskip("anywidget", reason="anywidget is not installed: pip install 'glassformer[notebook]'")
    page = glassformer.explore(tiny.run, SOURCE, TARGET)
    assert page == glassformer.report(tiny.run, SOURCE, TARGET)
    data, _ = page._repr_mimebundle_()  # type: ignore[attr-defined]
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/plain"] == repr(page)
    assert data["text/html"] == page._repr_html_()
    example = glassformer.explore(glassformer.examine(tiny.translator, SOURCE, TARGET))
    assert type(example) is Page


def test_widget_answers_messages_of_the_frame_and_drops_canceled_ones(
    tiny: TinyRun, client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("anywidget", reason="anywidget is not installed: pip install 'glassformer[notebook]'")
    widget = glassformer.explore(tiny.run, SOURCE, TARGET).widget  # type: ignore[attr-defined]
    answers: SimpleQueue[tuple[dict[str, Any], list[bytes]]] = SimpleQueue()
    monkeypatch.setattr(widget, "send", lambda content, buffers: answers.put((content, buffers)))

    def post(**message: object) -> None:
        widget._handle_msg({"content": {"data": {"method": "custom", "content": message}}, "buffers": []})

    post(id="0", method="GET", address=f"{ADDRESS}&step=3", headers={"x-fragment": "whole"})
    post(id="0", cancel=True)
    post(id="1", method="GET", address=f"logits{ADDRESS}", headers={})
    head, body = answers.get(timeout=PATIENCE / 1000)
    assert (head["id"], head["status"]) == ("1", 200)
    assert body == [client.submit(f"logits{ADDRESS}")[0].result().body]
    assert answers.empty()


def test_repeated_cells_share_one_model(tiny: TinyRun) -> None:
    pytest.importorskip("anywidget", reason="anywidget is not installed: pip install 'glassformer[notebook]'")
    assert glassformer.explore(tiny.run, SOURCE, TARGET).widget is not None  # type: ignore[attr-defined]
    threads = threading.active_count()
    assert glassformer.explore(tiny.run, TARGET, SOURCE).widget is not None  # type: ignore[attr-defined]
    assert threading.active_count() == threads
