"""Every task: it learns, stops and goes on bit for bit, and what it has learned can be used."""

import copy
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glassformer
import glassformer.train.loop
from glassformer.errors import CheckpointError, ConfigError
from glassformer.native.library import missing_reason
from glassformer.predict import Generator
from glassformer.storage.run_folder import RunFolder, step_of
from glassformer.tasks import TASKS, resolve_name
from glassformer.train import parse_config, train
from glassformer.train.tasks import make_task
from tiny_run import run_to_the_end, state_of
from tiny_tasks import EXAMPLES, TinyTask, made


class StoppedError(Exception):
    pass


@pytest.fixture(params=EXAMPLES)
def tiny(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> TinyTask:
    return made(tmp_path_factory, request.param)


def test_it_learns(tiny: TinyTask) -> None:
    first, *_, last = tiny.losses()
    assert last < first


def test_scores_are_those_of_the_weights_saved_with_them(tiny: TinyTask) -> None:
    run, task = RunFolder.open(tiny.run), make_task(tiny.config())
    told = {line["step"]: line for line in run.metrics() if line["event"] == "validated"}
    for path in run.checkpoints():
        scores = task.validate(glassformer.load(path).model)
        assert scores == pytest.approx({name: told[step_of(path)][name] for name in scores}, rel=1e-5)


def test_stopped_within_a_step_it_goes_on_bit_for_bit(
    tiny: TinyTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = copy.deepcopy(tiny.values)
    values["train"] |= {"max_steps": 7, "save_every": 3, "ema": 0.9}
    values["model"] |= {"dropout": 0.2}
    if values["task"] == "images":
        values["data"] |= {"augment": {"shift": 0.2, "erase": 0.5, "mixup": 0.4}}
    config = parse_config(values, "tiny")
    run_to_the_end(config, tmp_path / "undisturbed")
    run, whole = RunFolder.create(tmp_path / "run"), glassformer.train.loop.train_step

    def stopping(state: Any, *rest: Any) -> Any:
        done = whole(state, *rest)
        if state.counters.step == 5:
            raise StoppedError
        return done

    with monkeypatch.context() as patched:
        patched.setattr(glassformer.train.loop, "train_step", stopping)
        with pytest.raises(StoppedError):
            list(train(config, run))
    run_to_the_end(config, run.path, resume=True)
    assert state_of(run.path) == state_of(tmp_path / "undisturbed")


def test_load_gives_what_its_task_asks_for(tiny: TinyTask) -> None:
    found = glassformer.load(tiny.run)
    assert type(found).__name__ == EXAMPLES[tiny.values["task"]].predictor
    assert not found.model.training


def test_a_run_of_another_task_is_refused_with_the_verb_that_fits(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(CheckpointError, match=r"is a run of task=masked, but this is for language; use glassformer fi"):
        Generator.load(made(tmp_path_factory, "masked").run)
    run = made(tmp_path_factory, "tagging").run
    with pytest.raises(
        CheckpointError, match=r"task=tagging, but only translators form an ensemble; name one checkpoint$"
    ):
        glassformer.load(run, run)


def numbers(value: Any) -> list[float]:
    """All numbers in a nested result."""
    if isinstance(value, int | float | np.floating):
        return [float(value)]
    if isinstance(value, str):
        return []
    inside = vars(value).values() if is_dataclass(value) else value.values() if isinstance(value, dict) else value
    return [number for one in inside for number in numbers(one)]


def test_predictors_compute_the_same_with_every_engine_and_nearly_so_in_eight_bits(tiny: TinyTask) -> None:
    task = tiny.values["task"]
    use = EXAMPLES[task].use
    if missing_reason() or use is None:
        pytest.skip(missing_reason() or "precision of generators is a setting of decoding")
    kind = resolve_name(TASKS[task].predictor)
    native, torch_ = (numbers(use(kind.load(tiny.run, engine=engine))) for engine in ("native", "torch"))
    assert native == pytest.approx(torch_, rel=1e-3, abs=1e-4)
    eight = numbers(use(kind.load(tiny.run, precision="int8")))
    assert eight != native
    assert np.corrcoef(eight, native)[0, 1] > 0.98
    with pytest.raises(ConfigError, match="precision=bfloat16 is slower than float32 on a CPU"):
        kind.load(tiny.run, precision="bfloat16")
