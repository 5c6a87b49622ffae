"""Control characters in names, paths and messages do not reach the terminal."""

import os
import pty
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import glassformer.cli.app as app_module
from glassformer.cli.io import say
from glassformer.cli.messages import console, note, visible
from glassformer.errors import DataError
from own_process import ENVIRONMENT
from tiny_run import TinyRun

Cli = Callable[..., Any]
Refused = Callable[..., str]
HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\x7f\u202eevil\u2066\n\r"
SHOWN = r"\x1b]0;title\x07\x1b[2J\x9b31m\x7f\u202eevil\u2066\n\r"


def on_a_terminal(*arguments: object) -> str:
    """Output of a command on a terminal, stdout and stderr combined."""
    main, side = pty.openpty()
    command = [sys.executable, "-W", "ignore", "-m", "glassformer", *map(str, arguments)]
    environment = ENVIRONMENT | {"TERM": "xterm", "COLUMNS": "200"}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=side, stderr=side, env=environment) as process:
        os.close(side)
        found = b""
        while piece := _read(main):
            found += piece
        assert process.wait(timeout=300) == 0
    os.close(main)
    return found.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # the child closed the terminal
        return b""


def test_visible_escapes_only_control_characters() -> None:
    assert visible(HOSTILE) == SHOWN
    assert visible("a\tb\nc", keep="\n\t") == "a\tb\nc"
    plain = "é 日本語 🚀 עברית \u200f \u00a0 \\x1b"
    assert visible(plain) == plain
    every = "".join(map(chr, range(0x110000)))
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", visible(every))
    assert visible(every).encode()  # lone surrogates are escaped too


def test_notes_and_warnings_are_printed_on_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def command() -> None:
        note(HOSTILE)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(HOSTILE, stacklevel=1)
        raise DataError(HOSTILE)

    monkeypatch.setattr(app_module, "app", lambda *_, **__: command())
    result = cli("info")
    assert result.code == 2
    assert result.err.splitlines() == [SHOWN, f"glassformer: warning: {SHOWN}", f"glassformer: error: {SHOWN}"]


def test_errors_escape_control_characters_in_file_names(refused: Refused, tmp_path: Path) -> None:
    line = refused("train", tmp_path / f"run{HOSTILE}.toml")
    assert f"run{SHOWN}.toml: no such file" in line


def test_piped_output_keeps_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    say(HOSTILE)
    assert capsys.readouterr().out == f"{HOSTILE}\n"


def test_terminal_output_escapes_paths(tiny: TinyRun, tmp_path: Path) -> None:
    (tmp_path / "a\x1b[2Jb").symlink_to(tiny.run)
    shown = on_a_terminal("info", tmp_path / "a\x1b[2Jb")
    assert rf"{tmp_path}/a\x1b[2Jb/checkpoints" in shown
    assert "\x1b" not in shown


def test_walkthrough_escapes_text_and_keeps_its_colors(tiny: TinyRun) -> None:
    shown = on_a_terminal("walkthrough", tiny.run, "the \x1b]0;title\x1b[2J cat \u202e sleeps", "--step", "1")
    assert r"the \x1b]0;title\x1b[2J cat \u202e sleeps" in shown
    assert "\x1b]" not in shown
    assert "\x1b[2J" not in shown
    assert "\u202e" not in shown
    assert "\x1b[1m" in shown  # the command's own bold


def test_progress_bar_keeps_its_terminal_codes(tiny: TinyRun, tmp_path: Path) -> None:
    config = tiny.write_config(tmp_path / "config.toml", {"train.max_steps": 2})
    shown = on_a_terminal("train", config, "--run", tmp_path / "run\x1b[2J")
    assert r"run\x1b[2J" in shown
    assert "\x1b[2J" not in shown
    assert "2/2" in shown
    assert "\x1b[2K" in shown  # the bar erases its line to redraw it


def test_console_keeps_line_breaks(capsys: pytest.CaptureFixture[str]) -> None:
    screen = console(width=40)
    screen.print("one\ntwo \x1b[2J", markup=False)
    assert capsys.readouterr().out == "one\ntwo \\x1b[2J\n"
