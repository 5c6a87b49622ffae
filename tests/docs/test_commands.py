"""Run the commands of README and of docs/*.md on tiny runs with the same names."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import tiny_run
from glassformer.cli.app import app
from glassformer.errors import ConfigError
from glassformer.interop import require
from tiny_run import write_lines
from tiny_tasks import made

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
NAMES = {"intents": "classification", "entities": "tagging"}
CONFIGURATIONS = ("my.toml", "configs/multi30k_quick.toml", "configs/multi30k.toml")


def commands(page: str) -> list[list[str]]:
    """Each command line of the page, split; the input of a pipe comes before ``|``."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = "".join(re.findall(r"^ *```sh\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)).replace("\\\n", " ")
    lines = [shlex.split(line, comments=True) for line in blocks.splitlines()]
    return [line for line in lines if "glassformer" in line]


@pytest.fixture
def workplace(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Working directory with the runs, data and configurations that the pages name."""
    tiny = tiny_run.made(tmp_path_factory)
    for folder in ("runs", "data", "configs"):
        (tmp_path / folder).mkdir()
    for name in ("first", "other", "demo", "multi30k"):
        (tmp_path / "runs" / name).symlink_to(tiny.run)
    for name, task in NAMES.items():
        (tmp_path / "runs" / name).symlink_to(made(tmp_path_factory, task).run)
    for path in CONFIGURATIONS:
        tiny.write_config(tmp_path / path, {"train.max_steps": 2})
    (tmp_path / "configs" / "paper_base.toml").symlink_to(ROOT / "configs" / "paper_base.toml")
    lines = {
        code: (tiny.folder / f"validation.{code}").read_text(encoding="utf-8").splitlines() for code in ("en", "fr")
    }
    for name in ("train", "val", "test"):
        write_lines(tmp_path / "data" / f"{name}.en", lines["en"])
        write_lines(tmp_path / "data" / f"{name}.de", lines["fr"])
    write_lines(
        tmp_path / "data" / "test.tsv", ["\t".join(pair) for pair in zip(lines["en"], lines["fr"], strict=True)]
    )
    write_lines(tmp_path / "data" / "test.align", ["0-0"] * len(lines["en"]))
    write_lines(tmp_path / "data" / "test.csv", ["text,label", "the dog sings.,loud", "the cat runs.,quiet"])
    write_lines(tmp_path / "data" / "test.conll", ["the DET", "dog NOUN", ""])
    write_lines(tmp_path / "input.en", lines["en"][:1])
    (tmp_path / "runs" / "mine").symlink_to(tiny.run)
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    yield tmp_path
    torch.set_num_threads(threads)  # a command sets that of its configuration


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_commands_of_page_run(page: str, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in commands(page):
        position = command.index("glassformer")
        arguments, text = command[position + 1 :], " ".join(command[1 : max(0, position - 1)])
        if arguments[0] == "train":
            (workplace / "runs" / "mine").unlink()
        if arguments[0] == "explore":  # it serves until Ctrl-C
            monkeypatch.setattr("glassformer.web.server.serve", lambda app, listener, announce: listener.close())
            monkeypatch.setattr("glassformer.cli.explore.end_process", lambda code: None)
            arguments.append("--no-browser")
        if "ctranslate2" in arguments:
            try:
                require("ctranslate2", "ctranslate2")
            except ConfigError:
                continue
        result = CliRunner().invoke(app, arguments, input=text or None)
        assert result.exit_code == 0, f"{shlex.join(command)}: {result.output[-500:]}"
