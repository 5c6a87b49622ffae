"""Limits of requests, each answered with its number and the way out."""

from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """Answer 413 to a body of more than ``max_bytes``, also if its length was not announced."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self.app, self.max_bytes = app, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        fits = announced.isdigit() and int(announced) <= self.max_bytes
        try:
            body = await self._read(receive) if fits else b""
        except ClientDisconnect:
            return
        if not fits or len(body) > self.max_bytes:
            text = f"The body exceeds the limit of {self.max_bytes:,} bytes; send less.\n"
            await PlainTextResponse(text, 413)(scope, receive, send)
            return
        await self.app(scope, _replay(body, receive), send)

    async def _read(self, receive: Receive) -> bytes:
        """The body, up to one part beyond the limit."""
        body, more = b"", True
        while more and len(body) <= self.max_bytes:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            body += message.get("body", b"")
            more = message.get("more_body", False)
        return body


def _replay(body: bytes, receive: Receive) -> Receive:
    """A channel that gives ``body`` first, then what ``receive`` gives."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return pending.pop() if pending else await receive()

    return replayed
