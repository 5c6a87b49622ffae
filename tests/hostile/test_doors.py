"""Hostile checkpoints in every command that opens one, and hostile training states."""

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
from glassformer.errors import GlassformerError
from glassformer.predict import load
from glassformer.storage.manifest import measure, write_manifest
from glassformer.storage.run_folder import resolve

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


@pytest.fixture
def resume(refused: Refused, tiny: tiny_run.TinyRun, run: Path, tmp_path: Path) -> Callable[[], str]:  # noqa: F811
    """Resume the run; return the one-line error."""
    config = tiny.write_config(tmp_path / "resumed.toml", {"train.max_steps": 50})
    return lambda: refused("train", config, "--run", run, "--resume")


def edit(checkpoint: Path, file: str, path: str, value: Any, names: list[str]) -> None:
    """Set one value in a JSON file of a checkpoint and rewrite the manifest."""
    document = json.loads((checkpoint / file).read_text(encoding="utf-8"))
    *parents, last = path.split(".")
    section = document
    for key in parents:
        section = section[key]
    section[last] = value
    (checkpoint / file).write_text(json.dumps(document), encoding="utf-8")
    write_manifest(checkpoint, {name: measure(checkpoint / name, checkpoint) for name in names})


@pytest.mark.parametrize("path", list(SETTINGS))
@pytest.mark.parametrize("verb", ["info", "translate", "tokenize", "average", "export", "walkthrough"])
def test_every_command_refuses_hostile_settings(refused: Refused, run: Path, path: str, verb: str) -> None:  # noqa: F811
    for checkpoint in (run / "checkpoints").iterdir():
        edit(checkpoint, "config.json", path, SETTINGS[path], [*FILES, *STATE])
    rest: dict[str, list[object]] = {
        "export": [run / "there", "--to", "ctranslate2"],
        "walkthrough": ["a dog"],
    }
    assert str(run) in refused(verb, run, *rest.get(verb, []))


@pytest.mark.parametrize("path", list(SETTINGS))
def test_start_from_and_resume_refuse_hostile_settings(
    refused: Refused,  # noqa: F811
    resume: Callable[[], str],
    tiny: tiny_run.TinyRun,
    run: Path,
    tmp_path: Path,
    path: str,
) -> None:
    for checkpoint in (run / "checkpoints").iterdir():
        edit(checkpoint, "config.json", path, SETTINGS[path], [*FILES, *STATE])
    begun = tiny.write_config(tmp_path / "begun.toml", {"train.start_from": str(run)})
    assert "config.json" in refused("train", begun, "--run", tmp_path / "new")
    assert "config.json" in resume()


STATES = {
    "counters": [5, None, {"step": "x", "unheard_of": 1}],
    "config": [5, None, {}, {"train": 5}],
    "data": [5, None],
    "batches": [5, None, {}, {"epoch": -1}],
    "kernels": [[], "of another machine"],
}


@pytest.mark.parametrize("path", list(STATES))
def test_resume_refuses_a_hostile_training_state(resume: Callable[[], str], run: Path, path: str) -> None:
    newest = sorted((run / "checkpoints").iterdir())[-1]
    for value in STATES[path]:
        edit(newest, STATE[0], path, value, [*FILES, *STATE])
        line = resume()
        assert str(run) in line or "began with a version of glassformer without this setting" in line


def shorten(tensors: dict[str, torch.Tensor]) -> None:
    tensors["random.cpu"] = tensors["random.cpu"][:10].clone()


def forget(tensors: dict[str, torch.Tensor]) -> None:
    del tensors["random.cpu"]


def reshape(tensors: dict[str, torch.Tensor]) -> None:
    name = next(name for name in tensors if name.endswith(".exp_avg"))
    tensors[name] = torch.zeros(7)


@pytest.mark.parametrize("change", [shorten, forget, reshape])
def test_resume_refuses_tensors_that_do_not_match_the_run(
    resume: Callable[[], str], run: Path, change: Callable[[dict[str, torch.Tensor]], None]
) -> None:
    newest = sorted((run / "checkpoints").iterdir())[-1]
    tensors = load_file(newest / STATE[1])
    change(tensors)
    save_file(tensors, newest / STATE[1])
    write_manifest(newest, {name: measure(newest / name, newest) for name in [*FILES, *STATE]})
    line = resume()
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
    """Load the checkpoint and run its task once."""
    model = load(checkpoint)
    example = GIVEN[task](checkpoint.parent)
    if task == "forecasting":
        model.forecast_file(str(example))
    else:
        verbs = {"language": "generate", "masked": "fill", "tagging": "tag"}
        getattr(model, verbs.get(task, "classify"))([example])


@pytest.mark.parametrize("task", list(OTHERS))
def test_load_refuses_hostile_values_of_every_task(tmp_path: Path, task: str) -> None:
    use(stored(tmp_path / "pristine", task), task)
    for number, (path, value) in enumerate([*OTHERS[task], ("model.n_layers", 10**7), ("model.d_model", 10**9)]):
        checkpoint = stored(tmp_path / str(number), task)
        edit(checkpoint, "config.json", path, value, FILES)
        with pytest.raises(GlassformerError) as caught:
            use(checkpoint, task)
        assert "\n" not in str(caught.value), (path, value)


def test_resolve_finds_a_loadable_checkpoint_of_a_run(tiny: tiny_run.TinyRun) -> None:
    assert load(resolve(tiny.run)).translate(["a dog runs."])
