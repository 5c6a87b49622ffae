"""``glassformer.train(config)``: training from Python."""

import inspect
import json
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import glassformer
import glassformer.train.loop
from glassformer.errors import CheckpointError, ConfigError
from glassformer.storage.run_folder import RunFolder
from glassformer.train import Finished, Started, Stepped, TrainingResult, Validated, events
from tiny_run import TinyRun, run_to_the_end, state_of

SHORT = {
    "train.max_steps": 4,
    "validation.every": 2,
    "validation.metric": "loss",
    "validation.max_sentences": 2,
    "decoding.max_extra": 2,
}


def test_train_accepts_a_file_a_dictionary_and_a_config(tiny: TinyRun, tmp_path: Path) -> None:
    run_to_the_end(tiny.config(SHORT), tmp_path / "expected")
    expected = state_of(tmp_path / "expected")
    file = tiny.write_config(tmp_path / "tiny.toml", SHORT)
    for number, config in enumerate((file, str(file), tiny.settings(SHORT), tiny.config(SHORT))):
        result = glassformer.train(config, run=tmp_path / f"run{number}")
        assert isinstance(result, TrainingResult)
        assert state_of(result.run) == expected


def test_training_result_has_scores_and_best_and_loads_the_model(
    tiny: TinyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = glassformer.train(tiny.settings(SHORT), run=tmp_path / "run")
    assert capsys.readouterr() == ("", "")
    assert (result.run, result.step) == (tmp_path / "run", 4)
    assert result.reason == "train.max_steps=4 is reached"
    assert set(result.scores) == {"bleu", "chrf", "nll", "perplexity"}
    assert result.best == RunFolder.open(result.run).best()
    assert result.best is not None
    assert result.checkpoint == result.best.checkpoint
    assert len(result.load().translate(["the cat sleeps"])) == 1


def test_train_overrides_and_resume_match_the_command(tiny: TinyRun, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    settings = tiny.settings(SHORT)
    glassformer.train(settings, run=whole, overrides=["train.max_steps=5"])
    assert glassformer.train(tiny.config(SHORT), run=parts, overrides=["train.max_steps=2"]).step == 2
    assert glassformer.train(settings, run=parts, overrides=["train.max_steps=5"], resume=True).step == 5
    assert state_of(parts)["weights"] == state_of(whole)["weights"]
    assert settings == tiny.settings(SHORT)
    with pytest.raises(CheckpointError, match="holds a run already"):
        glassformer.train(settings, run=parts)


def test_train_derives_the_run_folder_only_from_a_file(
    tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tiny.write_config(tmp_path / "tiny.toml", SHORT)
    assert glassformer.train(file, overrides=["train.max_steps=1"]).run == Path("runs/tiny")
    message = "run=None, and a configuration without a file has no name; give the run folder, as run='runs/x'"
    with pytest.raises(ConfigError, match=re.escape(message)):
        glassformer.train(tiny.settings(SHORT))


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (None, {}, "config=None is not a configuration; give a TOML file, a dict or a RunConfig"),
        ({}, {"overrides": "train.seed=2"}, "overrides='train.seed=2' is one string; give a list, as ['train.seed=2']"),
        ({"dta": {}}, {}, "configuration: data is not given"),
        ("nowhere.toml", {}, "nowhere.toml: no such file"),
    ],
)
def test_train_rejects_invalid_configurations(
    tmp_path: Path, config: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        glassformer.train(config, run=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_events_yields_the_events_of_the_loop(tiny: TinyRun, tmp_path: Path) -> None:
    found = list(events(tiny.settings(SHORT), run=tmp_path / "run", each_step=True))
    assert isinstance(found[0], Started)
    assert isinstance(found[-1], Finished)
    assert sum(isinstance(event, Stepped) for event in found) == 4
    assert sum(isinstance(event, Validated) for event in found) == 2


def test_train_warns_of_zero_bleu(tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {"nll": 1.0, "bleu": 0.0, "chrf": 0.0}
    monkeypatch.setattr(glassformer.train.loop, "without_dropout", lambda *_: scores)
    with pytest.warns(UserWarning, match="BLEU is 0: until it rises") as caught:
        glassformer.train(tiny.settings(SHORT | {"validation.metric": "bleu"}), run=tmp_path / "run")
    assert [warning.filename for warning in caught] == [__file__]


def test_train_has_a_signature_and_help() -> None:
    assert list(inspect.signature(glassformer.train).parameters) == ["config", "run", "overrides", "resume"]
    page = pydoc.plain(pydoc.render_doc(glassformer.train))
    assert 'glassformer.train("configs/x.toml", run="runs/x", overrides=["train.max_steps=100"])' in page
    assert inspect.getdoc(type(glassformer.train).__call__) == inspect.getdoc(glassformer.train.function.train)


@pytest.mark.parametrize(
    "before",
    [
        "import glassformer",
        "import glassformer.train.loop",
        "from glassformer.train import train",
        "import glassformer.predict",
    ],
)
def test_train_is_callable_after_any_import_order(tiny: TinyRun, tmp_path: Path, before: str) -> None:
    """Its submodules stay modules afterwards."""
    settings = tiny.settings({"train.max_steps": 1, "train.threads": 0, "data.validation": []})
    program = f"""
import json, sys
{before}
import glassformer
result = glassformer.train(json.loads(sys.argv[1]), run=sys.argv[2])
import glassformer.train.loop
from glassformer import train
assert train is glassformer.train is sys.modules["glassformer.train"]
assert callable(glassformer.train.loop.train_step)
print(result.step)
"""
    command = [sys.executable, "-c", program, json.dumps(settings), str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
