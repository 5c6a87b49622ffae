"""One check before every route: Host, key, Origin; and the headers of every answer.

The page runs on the user's machine, where every other web page can send it requests. A foreign Host header (DNS
rebinding) and a request of another site are refused before any route is reached.
"""

import hashlib
import hmac
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glassformer.web.settings import WebSettings

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
"""Content security policy: no inline script or style, nothing of another origin, no frame around the page."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
NO_KEY = (
    "<!doctype html><html lang=en><title>glassformer</title><h1>The key is missing</h1>"
    "<p>Open the address that <code>glassformer explore</code> printed; it contains the key of this page.</p>"
)


class Guard:
    """Refuse requests with a foreign Host (403), of another site (403) or without the key (401)."""

    def __init__(self, app: ASGIApp, settings: WebSettings) -> None:
        self.app, self.settings = app, settings
        self.cookie = f"glassformer-{hashlib.sha256(settings.token.encode()).hexdigest()[:12]}"
        """Name of the cookie; two servers on one machine have the same host, so each has its own name."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # no web sockets

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self.app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        """The answer to a request that reaches no route; None for one that may."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if _without_port(host) not in self.settings.hosts:
            return PlainTextResponse("This host name is not allowed; open the address with 127.0.0.1.\n", 403)
        if self._is_foreign(scope, headers, host):
            return PlainTextResponse("Requests of other sites are refused.\n", 403)
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if given and self._matches(given[0]):
            return self._with_cookie(scope, [pair for pair in query if pair[0] != "token"])
        return None if self._matches(self._stored(headers)) else HTMLResponse(NO_KEY, 401)

    def _is_foreign(self, scope: Scope, headers: Headers, host: str) -> bool:
        """True for a request that another site made: what changes state needs the own Origin."""
        navigates = headers.get("sec-fetch-mode", "navigate") == "navigate"
        if scope["method"] in SAFE_METHODS:
            return headers.get("sec-fetch-site", "none") in ("cross-site", "same-site") and not navigates
        return headers.get("origin") != f"http://{host}"

    def _with_cookie(self, scope: Scope, rest: list[tuple[str, str]]) -> Response:
        """The same address without the key, which is in a cookie from now on."""
        query = f"?{urlencode(rest)}" if rest else ""
        path = "/" + scope["path"].lstrip("/")  # "//host" would be another site
        answer = RedirectResponse(f"{path}{query}", 303)
        answer.set_cookie(self.cookie, self.settings.token, httponly=True, samesite="strict")
        return answer

    def _stored(self, headers: Headers) -> str:
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load(headers.get("cookie", ""))
        except CookieError:
            return ""
        return cookies[self.cookie].value if self.cookie in cookies else ""

    def _matches(self, key: str) -> bool:
        return hmac.compare_digest(key.encode(), self.settings.token.encode())


def _without_port(host: str) -> str:
    """``[::1]:80`` → ``[::1]``, in lower case."""
    name, _, port = host.lower().rpartition(":")
    return name if name and port.isdigit() else host.lower()
