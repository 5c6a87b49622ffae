"""The guard: no key, no page; a foreign Host or another site, no answer; and the headers of every answer."""

import socket
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx2", reason="httpx2 is not installed: pip install httpx2")
pytest.importorskip("fastapi", reason="fastapi is not installed: pip install 'glassformer[web]'")
from starlette.testclient import TestClient

from glassformer.web.app import create_app
from glassformer.web.explorer.routes import explorer_routes
from glassformer.web.security import SAFE_METHODS
from glassformer.web.settings import WebSettings

KEY = "the-key"
BASE = "http://127.0.0.1:8000"


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    return TestClient(create_app(tmp_path, WebSettings(token=KEY)), base_url=BASE)


def routes(client: TestClient) -> list[str]:
    explorer: Any = client.app.state.explorer  # type: ignore[attr-defined]
    return [route.path.replace("{name}", "main.js") for route in explorer_routes(explorer).routes]  # type: ignore[attr-defined]


def test_every_route_needs_the_key(client: TestClient) -> None:
    for path in [*routes(client), "/no-such-route"]:
        for query in ("", "?token=", "?token=wrong"):
            answer = client.get(path + query)
            assert answer.status_code == 401, path
            assert KEY not in answer.text
    assert len(routes(client)) >= 4


def test_every_route_refuses_foreign_hosts_and_other_sites(client: TestClient) -> None:
    client.get(f"/static/main.js?token={KEY}")
    explorer: Any = client.app.state.explorer  # type: ignore[attr-defined]
    posts = 0
    for route in explorer_routes(explorer).routes:
        path = route.path.format(name="main.js", action="cancel")  # type: ignore[attr-defined]
        for method in route.methods:  # type: ignore[attr-defined]
            refused = [{"host": "evil.example"}, {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}]
            if method not in SAFE_METHODS:
                refused = [{}, {"origin": "null"}, {"origin": "http://evil.example"}, {"host": "evil", "origin": BASE}]
                posts += 1
            for headers in refused:
                assert client.request(method, path, headers=headers).status_code == 403, (method, path, headers)
    assert posts == 1


def test_key_in_the_address_becomes_a_cookie(client: TestClient) -> None:
    answer = client.get(f"/static/main.js?token={KEY}&source=a+b", follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/static/main.js?source=a+b"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/static/main.js").status_code == 200


def test_key_in_the_address_leads_to_no_other_site(client: TestClient) -> None:
    answer = client.get(f"{BASE}//evil.example/?token={KEY}", follow_redirects=False)
    assert answer.headers["location"] == "/evil.example/"


def test_unexpected_error_is_a_line_without_texts(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    explorer: Any = client.app.state.explorer  # type: ignore[attr-defined]

    async def fail(*_: object) -> None:
        raise RuntimeError("a private text")

    monkeypatch.setattr(explorer, "compute", fail)
    client.get(f"/static/main.js?token={KEY}")
    answer = client.get("/logits?source=private")
    assert (answer.status_code, answer.text.startswith("This view failed")) == (500, True)
    assert "content-security-policy" in answer.headers
    assert "RuntimeError" in caplog.text
    assert "private" not in caplog.text.replace("test_security.py", "")


def test_two_servers_have_cookies_of_their_own() -> None:
    from glassformer.web.security import Guard

    names = {Guard(lambda *_: None, WebSettings(token=token)).cookie for token in "ab"}  # type: ignore[arg-type, return-value]
    assert len(names) == 2


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8000", "", "localhost.evil"])
def test_foreign_host_is_refused(client: TestClient, host: str) -> None:
    assert client.get(f"/static/main.js?token={KEY}", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9", "LOCALHOST", "[::1]:8000", "[::1]"])
def test_names_of_this_machine_are_answered(client: TestClient, host: str) -> None:
    answer = client.get(f"/static/main.js?token={KEY}", headers={"host": host}, follow_redirects=False)
    assert answer.status_code == 303


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "", "http://127.0.0.1:1", "https://127.0.0.1:8000", "http://[bad"]
)
def test_form_of_another_site_is_refused(client: TestClient, origin: str) -> None:
    client.get(f"/static/main.js?token={KEY}")
    assert client.post("/", headers={"origin": origin}, data={"source": "x"}).status_code == 403


def test_own_origin_passes_the_guard(client: TestClient) -> None:
    client.get(f"/static/main.js?token={KEY}")
    assert client.post("/", headers={"origin": BASE}, data={"source": "x"}).status_code == 405


def test_script_of_another_site_is_refused(client: TestClient) -> None:
    client.get(f"/static/main.js?token={KEY}")
    foreign = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert client.get("/static/main.js", headers=foreign).status_code == 403


def test_headers_of_every_answer(client: TestClient) -> None:
    answers = [client.get("/"), client.get("/", headers={"host": "evil"}), client.get(f"/static/main.js?token={KEY}")]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in answer.headers


def test_large_body_is_refused(client: TestClient) -> None:
    client.get(f"/static/main.js?token={KEY}")
    body = b"x" * 1_000_001
    headers = {"origin": BASE}
    assert client.post("/", headers=headers, content=body).status_code == 413
    assert client.post("/", headers=headers, content=iter([body])).status_code == 413
    assert client.post("/", headers=headers | {"content-length": "x"}, content=b"x").status_code == 413


@pytest.mark.parametrize(
    "name", ["..%2fapp.py", "x" * 300 + ".js", "nothing.js", "page.html", "loading.html", "%2e%2e/routes.py"]
)
def test_only_files_of_the_page_are_served(client: TestClient, name: str) -> None:
    client.get(f"/static/main.js?token={KEY}")
    assert client.get(f"/static/{name}").status_code == 404


def test_body_of_an_answer_does_not_wait_for_the_acknowledgment_of_its_headers() -> None:
    pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'glassformer[web]'")
    from glassformer.web.server import open_socket

    with open_socket(WebSettings()) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP  # then asyncio sets TCP_NODELAY
