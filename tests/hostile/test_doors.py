"""Hostile checkpoints at every verb that opens one, and hostile training states."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import tiny_run
from cli.conftest import cli, refused  # noqa: F401
from cli.stored_models import GIVEN, stored
from glassformer.config import GlassformerError
from glassformer.manifest import write_manifest
from glassformer.predict import load
from glassformer.run_folder import resolve

Refused = Callable[..., str]
FILES = ["config.json", "tokenizer.json", "model.safetensors"]
STATE = ["training_state/state.json", "training_state/tensors.safetensors"]
SETTINGS = {"model.d_model": 10**9, "model.n_decoder_layers": 10**7, "model.vocab_size": True, "task": ["translation"]}


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tiny_run.TinyRun:
    return tiny_run.made(tmp_path_factory)


@pytest.fixture
def run(tiny: tiny_run.TinyRun, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny.run, tmp_path / "run"))


def edit(checkpoint: Path, file: str, path: str, value: Any, names: list[str]) -> None:
    """Set one value in a JSON file of a checkpoint, and write its manifest anew."""
    document = json.loads((checkpoint / file).read_text(encoding="utf-8"))
    *parents, last = path.split(".")
    section = document
    for key in parents:
        section = section[key]
    section[last] = value
    (checkpoint / file).write_text(json.dumps(document), encoding="utf-8")
    write_manifest(checkpoint, names)


@pytest.mark.parametrize("path", list(SETTINGS))
@pytest.mark.parametrize("verb", ["info", "translate", "tokenize", "average", "export", "walkthrough"])
def test_hostile_settings_are_refused_by_every_verb(refused: Refused, run: Path, path: str, verb: str) -> None:  # noqa: F811
    for checkpoint in (run / "checkpoints").iterdir():
        edit(checkpoint, "config.json", path, SETTINGS[path], [*FILES, *STATE])
    rest: dict[str, list[object]] = {
        "export": [run / "there", "--to", "ctranslate2"],
        "walkthrough": ["a dog"],
    }
    assert str(run) in refused(verb, run, *rest.get(verb, []))


@pytest.mark.parametrize("path", list(SETTINGS))
def test_hostile_settings_are_refused_where_a_training_starts_from_them_or_is_resumed(
    refused: Refused,  # noqa: F811
    tiny: tiny_run.TinyRun,
    run: Path,
    tmp_path: Path,
    path: str,
) -> None:
    for checkpoint in (run / "checkpoints").iterdir():
        edit(checkpoint, "config.json", path, SETTINGS[path], [*FILES, *STATE])
    begun = tiny.write_config(tmp_path / "begun.toml", {"train.start_from": str(run)})
    assert "config.json" in refused("train", begun, "--run", tmp_path / "new")
    config = tiny.write_config(tmp_path / "resumed.toml", {"train.max_steps": 50})
    assert "config.json" in refused("train", config, "--run", run, "--resume")


STATES = {
    "counters": [5, None, {"step": "x", "unheard_of": 1}],
    "config": [5, None, {}, {"train": 5}],
    "data": [5, None],
    "batches": [5, None, {}, {"epoch": -1}],
    "kernels": [[], "of another machine"],
}


@pytest.mark.parametrize("path", list(STATES))
def test_a_hostile_training_state_is_refused(
    refused: Refused,  # noqa: F811
    tiny: tiny_run.TinyRun,
    run: Path,
    tmp_path: Path,
    path: str,
) -> None:
    config = tiny.write_config(tmp_path / "resumed.toml", {"train.max_steps": 50})
    newest = sorted((run / "checkpoints").iterdir())[-1]
    for value in STATES[path]:
        edit(newest, STATE[0], path, value, [*FILES, *STATE])
        line = refused("train", config, "--run", run, "--resume")
        assert str(run) in line or line.startswith("the run was begun by a version that did not know ")


def shorten(tensors: dict[str, torch.Tensor]) -> None:
    tensors["random.cpu"] = tensors["random.cpu"][:10].clone()


def forget(tensors: dict[str, torch.Tensor]) -> None:
    del tensors["random.cpu"]


def reshape(tensors: dict[str, torch.Tensor]) -> None:
    name = next(name for name in tensors if name.endswith(".exp_avg"))
    tensors[name] = torch.zeros(7)


@pytest.mark.parametrize("change", [shorten, forget, reshape])
def test_tensors_that_are_not_of_the_training_are_refused(
    refused: Refused,  # noqa: F811
    tiny: tiny_run.TinyRun,
    run: Path,
    tmp_path: Path,
    change: Callable[[dict[str, torch.Tensor]], None],
) -> None:
    newest = sorted((run / "checkpoints").iterdir())[-1]
    tensors = load_file(newest / STATE[1])
    change(tensors)
    save_file(tensors, newest / STATE[1])
    write_manifest(newest, [*FILES, *STATE])
    config = tiny.write_config(tmp_path / "resumed.toml", {"train.max_steps": 50})
    line = refused("train", config, "--run", run, "--resume")
    assert line.startswith(f"{newest}: training_state does not match this run (")


OTHERS: dict[str, list[tuple[str, Any]]] = {
    "language": [("context", "8"), ("context", 0), ("documents", 5), ("within_documents", 1)],
    "masked": [("max_length", "16"), ("max_length", 0)],
    "classification": [("labels", 5), ("labels", ["a"]), ("labels", [1, 2, 3]), ("labels", None)],
    "tagging": [("tags", "ab"), ("tags", []), ("tags", None)],
    "images": [
        *[("format", 5), ("format", {}), ("format.height", 10**9), ("format.mean", [0.5] * 5)],
        *[("format.classes", ["a"]), ("format.deviation", [])],
    ],
    "forecasting": [("format", None), ("format.mean", []), ("format.columns", ["a"]), ("format.deviation", ["1"])],
}


def use(checkpoint: Path, task: str) -> None:
    """Load the checkpoint, and do what its task does."""
    model = load(checkpoint)
    given = GIVEN[task](checkpoint.parent)
    if task == "forecasting":
        model.forecast_file(str(given))
    else:
        verbs = {"language": "generate", "masked": "fill", "tagging": "tag"}
        getattr(model, verbs.get(task, "classify"))([given])


@pytest.mark.parametrize("task", list(OTHERS))
def test_hostile_values_of_every_task_are_refused(tmp_path: Path, task: str) -> None:
    use(stored(tmp_path / "pristine", task), task)
    for number, (path, value) in enumerate([*OTHERS[task], ("model.n_layers", 10**7), ("model.d_model", 10**9)]):
        checkpoint = stored(tmp_path / str(number), task)
        edit(checkpoint, "config.json", path, value, FILES)
        with pytest.raises(GlassformerError) as caught:
            use(checkpoint, task)
        assert "\n" not in str(caught.value), (path, value)


def test_the_checkpoint_of_a_run_is_found_as_before(tiny: tiny_run.TinyRun) -> None:
    assert load(resolve(tiny.run)).translate(["a dog runs."])
