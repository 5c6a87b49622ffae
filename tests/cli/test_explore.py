"""``glassformer explore``: address, key, Ctrl-C, and what is refused before a page is served."""

import contextlib
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

import tiny_tasks
from own_process import ENVIRONMENT, started
from tiny_run import TinyRun

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install 'glassformer[web]'")

Refused = Callable[..., str]


def test_serves_a_page_until_ctrl_c(tiny: TinyRun) -> None:
    with started("explore", tiny.run, "--no-browser", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            address = process.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:")
            page, _, key = address.partition("?token=")
            assert len(key) >= 24
            with pytest.raises(urllib.error.HTTPError, match="401") as refusal:
                urllib.request.urlopen(page, timeout=60)
            refusal.value.close()
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
            with opener.open(address, timeout=60) as answer:
                assert b"glassformer" in answer.read()
            asked = urllib.request.Request(f"{page}?source=the+old+cat+sleeps", headers={"x-fragment": "1"})
            with opener.open(asked, timeout=120) as answer:
                assert b"the old cat sleeps" in answer.read()
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
            assert key not in process.stderr.read()
        finally:
            process.kill()


def test_nothing_heavy_is_imported_before_the_address_is_printed(tiny: TinyRun) -> None:
    script = f"""
import sys
import glassformer.cli.explore as explore
import glassformer.web.server as server
class Idle:
    def submit(self, job): return None
import glassformer.web.explorer.routes as routes
routes.Worker = Idle
def serve(app, listener, announce):
    announce()
    print(sorted({{"torch", "numpy", "tokenizers", "glassformer.explain"}} & set(sys.modules)))
server.serve = serve
explore.end_process = lambda code: None
explore.command([{str(tiny.run)!r}], browser=False)
"""
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr


def test_what_is_no_run_is_refused(refused: Refused, tmp_path: Path) -> None:
    assert "is neither a run nor a checkpoint; name the folder of a run" in refused("explore", tmp_path)
    assert "there is no such run or checkpoint" in refused("explore", tmp_path / "nothing")


def test_input_that_a_run_does_not_read_is_refused_before_it_is_loaded(
    refused: Refused, tiny: TinyRun, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = tiny_tasks.made(tmp_path_factory, "images").run
    for folder in (run, next(run.glob("checkpoints/step_*"))):
        assert "nothing.png: there is no such file; name an image" in refused(
            "explore", folder, "--input", "nothing.png"
        )
    assert "a run of translation reads texts, not files" in refused("explore", tiny.run, "--input", run / "config.toml")


def test_ctrl_c_with_open_requests_prints_nothing(tiny: TinyRun) -> None:
    with started("explore", tiny.run, "--no-browser", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            address = process.stdout.readline().strip()
            jar = CookieJar()
            with urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar)).open(address, timeout=60):
                (cookie,) = jar
            host = urllib.parse.urlsplit(address).netloc
            lines = (
                f"GET /?source=cat HTTP/1.1\r\nHost: {host}",
                f"Cookie: {cookie.name}={cookie.value}",
                "x-fragment: 1",
            )
            asked = "\r\n".join([*lines, "", ""]).encode()
            with contextlib.ExitStack() as stack:
                name, _, port = host.partition(":")
                for _ in range(8):
                    stack.enter_context(socket.create_connection((name, int(port)))).sendall(asked)
                time.sleep(0.2)
                process.send_signal(signal.SIGINT)
                assert process.wait(60) == 130
            assert process.stderr.read().splitlines()[1:] == []
        finally:
            process.kill()


def test_port_in_use_is_refused(refused: Refused, tiny: TinyRun) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = refused("explore", tiny.run, "--port", port, "--no-browser")
    assert line.startswith(f"port={port}: cannot be used (Address already in use); choose another --port, or 0")


def test_missing_extra_is_named(refused: Refused, tiny: TinyRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert "pip install 'glassformer[web]'" in refused("explore", tiny.run, "--no-browser")
