"""Run the Python code of docs/engines.md, and compare its tables with the settings."""

import platform
import re
from pathlib import Path
from typing import Any, get_args

import pytest

import tiny_run
from glassformer.generate import DecodingConfig
from glassformer.native import instructions
from glassformer.native.library import missing_reason
from glassformer.train import TrainConfig
from tiny_tasks import made

PAGE = (Path(__file__).parents[2] / "docs" / "engines.md").read_text(encoding="utf-8")


def test_engines_page_runs(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "multi30k").symlink_to(tiny_run.made(tmp_path_factory).run)
    (tmp_path / "runs" / "bert").symlink_to(made(tmp_path_factory, "masked").run)
    monkeypatch.chdir(tmp_path)
    if reason := missing_reason():
        pytest.skip(reason)
    names: dict[str, Any] = {}
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL), start=1):
        exec(compile(block, f"engines.md, block {number}", "exec"), names)
    assert names["route"](names["translator"].models[0])


def test_engines_page_names_every_engine() -> None:
    rows = re.findall(r"^\| `(\w+)`", PAGE.partition("\n## ")[0], re.MULTILINE)
    engines = get_args(TrainConfig.model_fields["engine"].annotation)
    assert sorted(rows) == sorted(engines)
    assert set(get_args(DecodingConfig.model_fields["engine"].annotation)) == set(engines) - {"compile"}


def test_engines_page_names_every_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = re.findall(r"^\| `((?:x86|arm)[^`]*)`", PAGE, re.MULTILINE)
    names = []
    for machine in ("x86_64", "aarch64"):
        monkeypatch.setattr(platform, "machine", lambda machine=machine: machine)
        names += [one.name for one in instructions.variants()]
    assert rows == names
