"""Validation on a share of the training examples: complete runs."""

import copy
from pathlib import Path
from typing import Any

import pytest

from glassformer.data.held_out import is_held_out
from glassformer.storage.run_folder import RunFolder
from glassformer.train import RunConfig, Started, Validated, parse_config
from tiny_run import made as tiny_translator
from tiny_run import run_to_the_end, state_of
from tiny_tasks import made

SHARE = 0.25


def values_of(factory: pytest.TempPathFactory, task: str) -> dict[str, Any]:
    tiny = tiny_translator(factory) if task == "translation" else made(factory, task)
    values = copy.deepcopy(tiny.values)
    values["data"] |= {"validation": [], "validation_share": SHARE}
    values["train"] |= {"max_steps": 8, "save_every": 4}
    values["validation"] |= {"every": 4}
    if task == "translation":
        values["validation"] |= {"max_sentences": 2}
        values["decoding"] |= {"max_extra": 2}
    return values


def config_of(values: dict[str, Any], **train: Any) -> RunConfig:
    return parse_config({**values, "train": {**values["train"], **train}}, "tiny")


@pytest.mark.parametrize("task", ["translation", "classification", "tagging", "images", "language"])
def test_validation_share_of_every_task_resumes_exactly(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, task: str
) -> None:
    values = values_of(tmp_path_factory, task)
    events = run_to_the_end(config_of(values), tmp_path / "undisturbed")
    assert sum(isinstance(event, Validated) for event in events) == 2
    run_to_the_end(config_of(values, max_steps=4), tmp_path / "run")
    run_to_the_end(config_of(values), tmp_path / "run", resume=True)
    resumed, undisturbed = state_of(tmp_path / "run"), state_of(tmp_path / "undisturbed")
    assert resumed["weights"] == undisturbed["weights"]
    assert resumed["best"] == undisturbed["best"]
    validated = [
        [line for line in RunFolder.open(tmp_path / name).metrics() if line["event"] == "validated"]
        for name in ("run", "undisturbed")
    ]
    scores = [[line.get("nll") for line in lines] for lines in validated]
    assert scores[0] == scores[1]


@pytest.mark.parametrize("task", ["translation", "classification"])
def test_held_out_examples_are_in_the_account(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, task: str
) -> None:
    values = values_of(tmp_path_factory, task)
    (path,) = values["data"]["train"]
    started = run_to_the_end(config_of(values, max_steps=1), tmp_path / "run")[0]
    assert isinstance(started, Started)
    if task == "translation":
        texts = Path(f"{path}.en").read_text(encoding="utf-8").splitlines()
    else:
        texts = [line.split("\t")[0] for line in Path(path).read_text(encoding="utf-8").splitlines()[1:]]
    held_out = sum(is_held_out([text], SHARE) for text in texts)
    kept = len(texts) - held_out
    assert f"{path}: {len(texts)} read, {kept} kept, {held_out} held out for validation" in started.accounts
    assert f"validation: {path}: {held_out} read, {held_out} kept" in started.accounts
