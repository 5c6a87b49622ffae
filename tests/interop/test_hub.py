"""Errors for models that cannot be downloaded, with the hub, the reason and the remedy."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from glassformer.errors import CheckpointError
from glassformer.interop.huggingface import import_folder
from glassformer.interop.pretrained import constants

NAME = "someone/something"
Answered = Callable[[int, str], str]


def refusal(name: str, tmp_path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        import_folder(name, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path / "cache"


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Answered]:
    """Refusal by an import from a hub that answers every request with a status and an error code."""
    answer: list[tuple[int, str]] = []

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(answer[-1][0])
            self.send_header("X-Error-Code", answer[-1][1])
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Hub) as server:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield lambda status, code: answer.append((status, code)) or refusal(NAME, tmp_path)
        server.shutdown()


def test_without_a_network(monkeypatch: pytest.MonkeyPatch, cache: Path, tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as closed:
        hub = f"http://127.0.0.1:{closed.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", hub)
    remedy = "name a local folder that save_pretrained has written, or go online"
    assert refusal(NAME, tmp_path) == (
        f"{NAME}: there is no such folder, and {hub} cannot be reached, nor is it in {cache}; {remedy}"
    )
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert f"{hub} may not be asked (HF_HUB_OFFLINE is set), nor is it in {cache}; " in refusal(NAME, tmp_path)


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [
        (
            404,
            "RepoNotFound",
            "has no accessible model of that name; correct the name, or for a private model: hf auth",
        ),
        (403, "GatedRepo", f"/{NAME} is only for who accepts its terms; accept them there, then: hf auth login"),
        (418, "", "refuses it (HTTP 418); try again later, or name a local folder"),
    ],
)
def test_error_gives_the_reason_of_the_hub(answered: Answered, status: int, code: str, reason: str) -> None:
    message = answered(status, code)
    assert message.startswith(f"{NAME}: there is no such folder, and {constants.ENDPOINT}")
    assert reason in message


@pytest.mark.parametrize("name", ["a b", "one/two/three", "./here", "owner/-"])
def test_invalid_name_is_refused_without_a_request(name: str, tmp_path: Path) -> None:
    message = "there is no such folder; name one, or a model of the hub (owner/name)"
    assert refusal(name, tmp_path) == f"{name}: {message}"
