"""A page of the tiny run, served in this process, and Chromium to open it with."""

import shutil
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import torch

import tiny_run
from glassformer.explain.example import Example
from glassformer.web.explorer.session import Session
from glassformer.web.settings import WebSettings

TOKEN = "key-of-the-tests"
PATIENCE = 120_000  # milliseconds: a machine may have other work
SOURCE, TARGET = "the old cat sleeps", "le vieux chat dort"


@dataclass
class ServedPage:
    """The application on a port of this machine, and what its pages asked for and complained of."""

    app: Any
    port: int
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def session(self) -> Session:
        session: Session = self.app.state.explorer.session.result()
        return session

    def example(self) -> Example:
        """The example that was looked at last."""
        return next(reversed(self.session._traces.values()))


@contextmanager
def served_page(run: Path, others: Sequence[Path] = ()) -> Iterator[ServedPage]:
    """Serve runs in a thread of this process."""
    uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'glassformer[web]'")
    from glassformer.web.app import create_app

    app = create_app(run, WebSettings(token=TOKEN), others)
    app.state.explorer.worker.submit(lambda: torch.set_num_threads(1)).result()
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error", lifespan="off", access_log=False))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    app.state.explorer.session.result()
    yield ServedPage(app, port)
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPage]:
    with served_page(tiny_run.made(tmp_path_factory).run) as one:
        yield one


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"], timeout=PATIENCE
        )
        yield started
        started.close()


@pytest.fixture
def page(served: ServedPage, browser: Any) -> Iterator[Any]:
    """A tab with the first view; any request that leaves the origin is refused and recorded."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE)
    tab = context.new_page()
    served.requests.clear()
    served.complaints.clear()

    def guard(route: Any) -> None:
        served.requests.append(route.request.url)
        if route.request.url.startswith((served.origin, "data:")):
            route.continue_()
        else:
            route.abort()

    tab.route("**/*", guard)
    tab.on("console", lambda message: served.complaints.append(message.text))
    tab.on("pageerror", lambda error: served.complaints.append(str(error)))
    tab.goto(f"{served.origin}/?token={TOKEN}")
    open_view(tab, served, source=SOURCE, target=TARGET, mode="forced")
    yield tab
    context.close()


def open_view(tab: Any, served: ServedPage, **fields: Any) -> None:
    """Go to an address of the page."""
    tab.goto(f"{served.origin}/?{urlencode(fields)}")
    tab.wait_for_selector("#stage-title")


def wait_until(tab: Any, condition: str, argument: Any = None) -> None:
    """Wait for a function in the page; the policy of the page forbids Playwright's own way, which is ``eval``."""
    end = time.monotonic() + PATIENCE / 1000
    while not tab.evaluate(condition, argument):
        assert time.monotonic() < end, condition
        time.sleep(0.02)


def wait_for_level(tab: Any, level: str) -> None:
    tab.wait_for_selector(f"body[data-level='{level}']")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tiny_run.TinyRun:
    return tiny_run.made(tmp_path_factory)


def faults_of_axe(tab: Any) -> Any:
    """Violations that axe-core finds in the shown page, with the first elements of each."""
    axe = pytest.importorskip("axe_core_python", reason="axe-core-python is not installed")
    tab.evaluate((Path(str(axe.__file__)).parent / "axe.min.js").read_text(encoding="utf-8") + "\n;0")
    faults = "(await axe.run()).violations.map(v => [v.id, v.nodes.map(n => n.html).slice(0, 3)])"
    return tab.evaluate(f"async () => {faults}")
