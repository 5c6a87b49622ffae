"""Runs and configurations with former keys predict, and resume, as they did.

``tests/data/former_keys`` holds a run of 12 steps for each task, its configuration, and its data. They were written by
the version before ``norm_eps``, ``attention_dropout``, ``scale_embeddings``, ``norm_embeddings`` and ``normalize`` had
these names, on an AMD Zen 3. ``expected.json`` holds what that version printed, and what it measured at step 24.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from glassformer.config import read_toml
from glassformer.errors import ConfigError
from glassformer.generate import TranslationDecodingConfig
from glassformer.models.bert import BERTConfig
from glassformer.models.encoder_decoder import EncoderDecoderConfig
from glassformer.models.gpt import GPTConfig
from glassformer.native.instructions import VARIABLE, processor_features, variants
from own_process import ENVIRONMENT

Cli = Callable[..., Any]
WRITTEN = Path(__file__).parents[1] / "data" / "former_keys"
EXPECTED = json.loads((WRITTEN / "expected.json").read_text(encoding="utf-8"))
WRITTEN_WITH = "x86-64-v3"
COMMANDS = {
    "translation": ["translate", "translation", "pairs.en", "--json"],
    "recurrent": ["translate", "recurrent", "pairs.en", "--json"],
    "language": ["generate", "language", "the d", "--no-sample", "--max-length", "12"],
    "masked": ["fill", "masked", "the [MASK] runs.", "--json"],
    "classification": ["classify", "classification", "the dog sings.", "--json"],
    "tagging": ["tag", "tagging", "pairs.en", "--json"],
    "images": ["classify", "images", "image.png", "--json"],
    "forecasting": ["forecast", "forecasting", "series.csv"],
}


@pytest.fixture(autouse=True)
def copy_of_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(WRITTEN, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("task", COMMANDS)
def test_run_with_former_keys_predicts_the_same(task: str, cli: Cli) -> None:
    done = cli(*COMMANDS[task])
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    for line, expected in zip(lines, EXPECTED[task]["output"], strict=False):
        for value, other in zip(leaves(line), leaves(expected), strict=True):
            assert value == (pytest.approx(other, rel=1e-4) if isinstance(other, float) else other)


def resume(task: str, steps: int) -> None:
    """Resume in a process with the instruction set that began the run: a run continues exactly only with that."""
    if not any(one.name == WRITTEN_WITH and one.features <= processor_features() for one in variants()):
        pytest.skip(f"the runs were begun with {WRITTEN_WITH}, which this processor does not have")
    arguments = ["train", f"{task}.toml", f"train.max_steps={steps}", "--run", task, "--resume"]
    subprocess.run(
        [sys.executable, "-m", "glassformer", *arguments], env={**ENVIRONMENT, VARIABLE: WRITTEN_WITH}, check=True
    )


@pytest.mark.parametrize("task", COMMANDS)
def test_run_with_former_keys_resumes_with_the_same_metrics(task: str) -> None:
    resume(task, 24)
    events = [json.loads(line) for line in Path(task, "metrics.jsonl").read_text().splitlines()]
    last = [event for event in events if event["event"] == "validated"][-1]
    assert last["step"] == 24
    for name, value in EXPECTED[task]["validated"].items():
        assert last[name] == pytest.approx(value, rel=1e-3)


def test_resumed_run_stores_the_present_keys() -> None:
    resume("language", 13)
    newest = json.loads(Path("language/checkpoints/step_00000013/config.json").read_text())["model"]
    for values in (newest, read_toml("language/config.toml")["model"]):
        assert values["norm_eps"] == 1e-4
        assert values["attention_dropout"] == 0.2
        assert "norm_epsilon" not in values
        assert "dropout" not in values["attention"]


@pytest.mark.parametrize(
    ("former", "scaled", "normed"), [("scaled", True, False), ("normed", False, True), ("scaled_normed", True, True)]
)
def test_former_embedding_setting_becomes_two_settings(former: str, scaled: bool, normed: bool) -> None:
    config = EncoderDecoderConfig.parse({"embedding": former})
    assert config.scale_embeddings == scaled
    assert config.norm_embeddings == normed


def test_former_key_of_a_section_moves_out_of_it() -> None:
    config = GPTConfig.parse({"attention": {"dropout": 0.3, "n_kv_heads": 2}})
    assert config.attention_dropout == 0.3
    assert config.attention.n_kv_heads == 2


@pytest.mark.parametrize(("compiled", "engine"), [(True, "auto"), (False, "torch")])
def test_former_compiled_setting_becomes_the_engine(compiled: bool, engine: str) -> None:
    assert TranslationDecodingConfig.parse_stored({"compiled": compiled}, "config.json").engine == engine


def test_a_key_and_its_former_name_are_refused_together() -> None:
    with pytest.raises(ConfigError, match="norm_epsilon was replaced by norm_eps, and both are set; leave"):
        BERTConfig.parse({"norm_eps": 1e-6, "norm_epsilon": 1e-6})


def test_unknown_value_of_the_former_embedding_setting_names_the_present_ones() -> None:
    with pytest.raises(ConfigError, match="embedding was replaced by scale_embeddings and norm_embeddings; set these"):
        EncoderDecoderConfig.parse({"embedding": "normal"})


def leaves(line: Any) -> Iterator[Any]:
    """Numbers and texts of a line of JSON or CSV, or of a nested value."""
    if isinstance(line, str) and line.startswith("{"):
        yield from leaves(json.loads(line))
    elif isinstance(line, dict):
        for key, value in line.items():
            yield key
            yield from leaves(value)
    elif isinstance(line, list):
        for value in line:
            yield from leaves(value)
    elif isinstance(line, str) and "," in line:
        yield from (number(cell) for cell in line.split(","))
    else:
        yield line


def number(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell
