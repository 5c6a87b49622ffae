"""Run the Python code of docs/python.md and docs/extras.md on tiny runs with the same names."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny_run
from glassformer.cli.app import app
from glassformer.errors import ConfigError
from glassformer.interop import require
from tiny_tasks import made

DOCS = Path(__file__).parents[2] / "docs"
RUNS = {"shakespeare": "language", "bert": "masked", "banking77": "classification", "tags": "tagging"}
ELSEWHERE = ("Training",)
"""Sections that other tests cover."""


@pytest.fixture
def workplace(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working directory with the runs that the pages name."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "multi30k").symlink_to(tiny_run.made(tmp_path_factory).run)
    for name, task in RUNS.items():
        (tmp_path / "runs" / name).symlink_to(made(tmp_path_factory, task).run)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sections(page: str) -> dict[str, str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return {part.partition("\n")[0]: part for part in text.split("\n## ")[1:]}


def code(section: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def run(page: str, names: dict[str, Any], *titles: str) -> None:
    for title, section in sections(page).items():
        if title in titles or (not titles and title not in ELSEWHERE):
            for number, block in enumerate(code(section), start=1):
                exec(compile(block, f"{page}, {title}, block {number}", "exec"), names)


def test_python_page_runs(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    run("python.md", names)
    printed = capsys.readouterr().out
    assert printed.startswith("<Translator: encoder_decoder, ")
    assert (workplace / "report.html").read_text(encoding="utf-8").startswith("<!")
    assert (workplace / "classification.html").exists()
    assert not torch.equal(names["after"], names["before"])
    assert not torch.equal(names["without"], names["before"])
    assert names["vectors"].norm(dim=1).allclose(torch.ones(2))


def test_extras_page_reads_a_curve_from_metrics(workplace: Path) -> None:
    names: dict[str, Any] = {}
    run("extras.md", names, "TensorBoard")
    assert names["curve"]
    assert all(nll > 0 for _, nll in names["curve"])


def test_extras_page_decodes_with_ctranslate2(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    try:
        require("ctranslate2", "ctranslate2")
    except ConfigError as error:
        pytest.skip(str(error))
    from glassformer.interop.to_ctranslate2 import export_ctranslate2

    export_ctranslate2("runs/multi30k", "exported/ct2")
    names: dict[str, Any] = {}
    run("extras.md", names, "Decoding with an exported CTranslate2 folder")
    tiny = tiny_run.made(tmp_path_factory)
    texts = (tiny.folder / "validation.en").read_text(encoding="utf-8").splitlines()
    assert names["translate"](texts, beam_size=1) == tiny.translator.translate(texts, beam_size=1, max_length=200)


@pytest.mark.parametrize("page", ["python.md", "extras.md"])
def test_pages_name_only_existing_commands_and_extras(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    verbs = {command.name for command in app.registered_commands}
    commands = "".join(re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert set(re.findall(r"^glassformer ([a-z]+) ", commands, re.MULTILINE)) <= verbs
    project = (DOCS.parent / "pyproject.toml").read_text(encoding="utf-8")
    for group in re.findall(r"\.\[([a-z0-9,]+)\]", text):
        assert set(group.split(",")) <= set(declared(project))


def declared(project: str) -> list[str]:
    """Extras in pyproject.toml."""
    table = project.split("[project.optional-dependencies]\n")[1].split("\n[")[0]
    return re.findall(r"^(\w+) = ", table, re.MULTILINE)


def test_extras_page_describes_every_extra() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (DOCS / "extras.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == declared((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))
