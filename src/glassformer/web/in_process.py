"""Requests to the application from within the process: a notebook's page needs no port."""

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Scope

from glassformer.web.security import Guard
from glassformer.web.settings import WebSettings

HOST = "127.0.0.1"
NOT_ANSWERED = 499
"""Status of a request that was dropped before it reached a route."""


class LocalAnswer(NamedTuple):
    """The answer to a request."""

    status: int
    headers: dict[str, str]
    body: bytes


class LocalClient:
    """Requests to ``app``, answered in a thread of their own. They pass the same checks as those of a port."""

    def __init__(self, app: ASGIApp, settings: WebSettings) -> None:
        self._app = app
        self._cookie = f"{Guard(app, settings).cookie}={settings.token}"
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="glassformer-notebook", daemon=True).start()

    def submit(
        self, address: str, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> "tuple[Future[LocalAnswer], threading.Event]":
        """The answer of an address such as ``?source=a+dog``, and an event to set when nobody waits for it any more."""
        gone = threading.Event()
        scope = self._scope(address, method, headers or {})
        return asyncio.run_coroutine_threadsafe(self._answer(scope, gone), self._loop), gone

    def _scope(self, address: str, method: str, headers: Mapping[str, str]) -> Scope:
        parts = urlsplit(f"/{address}")
        given = {**headers, "host": HOST, "cookie": self._cookie, "origin": f"http://{HOST}"}
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(parts.path),
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
            "client": (HOST, 0),
            "server": (HOST, 80),
        }

    async def _answer(self, scope: Scope, gone: threading.Event) -> LocalAnswer:
        status, headers, body = 0, dict[str, str](), bytearray()

        async def receive() -> Message:
            if gone.is_set():
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status, headers = message["status"], dict(MutableHeaders(raw=message["headers"]))
            else:
                body.extend(message.get("body", b""))

        await self._app(scope, receive, send)
        return LocalAnswer(status or NOT_ANSWERED, headers, bytes(body))
