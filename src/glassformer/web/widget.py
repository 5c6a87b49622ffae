"""The live page in a notebook, by anywidget, which is optional: ``notebook.explore`` imports this module, nothing else.

A frame has the page, its styles and its scripts. Its requests go through the notebook's connection to the kernel, where
the same application answers them that ``glassformer explore`` serves; no port is opened.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from threading import Event
from typing import Any

from anywidget import AnyWidget
from traitlets import Int, Unicode

from glassformer.web.app import create_app
from glassformer.web.in_process import LocalAnswer, LocalClient
from glassformer.web.notebook_frame import frame_document
from glassformer.web.settings import WebSettings

HEIGHT = 860
"""Height of the frame in pixels."""


@lru_cache(maxsize=4)
def client_of(run: Path) -> LocalClient:
    """The client of ``run``, which every cell of a notebook shares; else each repetition of a cell loads the model."""
    settings = WebSettings()
    return LocalClient(create_app(run, settings), settings)


class ExplorerWidget(AnyWidget):
    """The explorer of ``run`` at the view of ``address``."""

    _esm = (files("glassformer.web.explorer") / "static" / "widget.js").read_text(encoding="utf-8")
    document = Unicode("").tag(sync=True)
    height = Int(HEIGHT).tag(sync=True)

    def __init__(self, run: Path, address: str) -> None:
        self._client = client_of(run.resolve())
        self._running: dict[str, Event] = {}
        super().__init__(document=frame_document(self._client, address))
        self.on_msg(self._receive)

    def _receive(self, widget: Any, message: Mapping[str, Any], buffers: list[bytes]) -> None:
        """Answer a request of the frame, or drop one that it no longer waits for."""
        number = str(message["id"])
        if message.get("cancel"):
            if number in self._running:
                self._running.pop(number).set()
            return
        answer, gone = self._client.submit(message["address"], message["method"], message["headers"])
        self._running[number] = gone
        answer.add_done_callback(lambda future: self._send_answer(number, future))

    def _send_answer(self, number: str, future: "Future[LocalAnswer]") -> None:
        if self._running.pop(number, None) is None:
            return
        failed = future.exception() is not None
        answer = LocalAnswer(500, {}, b"This view failed.") if failed else future.result()
        self.send({"id": number, "status": answer.status, "headers": answer.headers}, [answer.body])
