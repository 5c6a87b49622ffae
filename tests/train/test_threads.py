"""The number of threads, on which the last bits of PyTorch's sums depend: a run resumes with the same one only."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer
from glassformer.errors import ConfigError
from glassformer.storage.checkpoint import TrainingState
from glassformer.storage.run_folder import RunFolder, training_values
from glassformer.train import train
from glassformer.train.resume import threads_to_resume
from glassformer.train.state import TrainState
from tiny_run import TinyRun, run_to_the_end, state_of

SETTINGS = {"train.threads": 0, "train.max_steps": 2, "train.save_every": 2, "data.validation": []}
LONGER = SETTINGS | {"train.max_steps": 4}


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("engine", ["torch", "auto"])
def test_a_run_on_two_threads_resumes_bit_for_bit(tiny: TinyRun, tmp_path: Path, engine: str) -> None:
    sizes = {"model.d_model": 64, "model.d_ff": 64, "model.norm_order": "pre"}  # the final normalization is PyTorch's
    config, run = tiny.config(LONGER | sizes | {"train.engine": engine}), RunFolder.create(tmp_path / "run")
    with threads(2):
        run_to_the_end(config, tmp_path / "undisturbed")
        going = train(config, run, each_step=True)
        assert max(getattr(event, "step", 0) for event in islice(going, 5)) == 3
        going.close()  # type: ignore[attr-defined]
        run_to_the_end(config, run.path, resume=True)
    assert state_of(run.path) == state_of(tmp_path / "undisturbed")
    assert training_values(run.checkpoints()[-1])["threads"] == 2


@pytest.mark.parametrize(("before", "now"), [(1, 2), (2, 1)])
def test_another_number_of_threads_is_refused(tiny: TinyRun, tmp_path: Path, before: int, now: int) -> None:
    with threads(before):
        run_to_the_end(tiny.config(SETTINGS), tmp_path / "run")
    message = (
        f"step_00000002: trained with {before} thread{'s' if before > 1 else ''}, but this process computes with {now}"
        f", and a run continues exactly only with the same number; set train.threads={before} (in Python, call "
        f"torch.set_num_threads({before})), or set train.override_on_resume=true to go on with {now}"
    )
    written = state_of(tmp_path / "run")
    with threads(now), pytest.raises(ConfigError, match=re.escape(message) + "$"):
        glassformer.train(tiny.settings(LONGER), run=tmp_path / "run", resume=True)
    assert state_of(tmp_path / "run") == written
    with threads(before):
        assert glassformer.train(tiny.settings(LONGER), run=tmp_path / "run", resume=True).step == 4


def test_override_on_resume_changes_the_number_of_threads_and_records_it(tiny: TinyRun, tmp_path: Path) -> None:
    run_to_the_end(tiny.config(SETTINGS), tmp_path / "run")
    with threads(2):
        changed = tiny.config(LONGER | {"train.override_on_resume": True})
        started, *_ = run_to_the_end(changed, tmp_path / "run", resume=True)
        assert started.overrides == ["train.threads: 1 → 2"]
        again = tiny.config(LONGER | {"train.max_steps": 5})
        started, *_ = run_to_the_end(again, tmp_path / "run", resume=True)
        assert started.overrides == []
    (override,) = training_values(RunFolder.open(tmp_path / "run").checkpoints()[-1])["overrides"]
    assert override == {"step": 2, "name": "train.threads", "before": 1, "now": 2}


def test_the_setting_may_change_if_the_number_does_not(tiny: TinyRun, tmp_path: Path) -> None:
    run_to_the_end(tiny.config(SETTINGS), tmp_path / "run")
    for step, setting in ((3, 1), (4, 0)):
        config = tiny.config(SETTINGS | {"train.max_steps": step, "train.threads": setting})
        started, *_ = run_to_the_end(config, tmp_path / "run", resume=True)
        assert started.overrides == []


@pytest.mark.parametrize(("setting", "refused"), [(1, True), (0, False)])
def test_a_state_without_the_number_is_compared_by_its_setting(
    tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: int, refused: bool
) -> None:
    """As early versions saved it."""
    snapshot = TrainState.snapshot

    def early(state: TrainState) -> TrainingState:
        saved = snapshot(state)
        del saved.values["threads"]
        return saved

    with monkeypatch.context() as earlier:
        earlier.setattr(TrainState, "snapshot", early)
        run_to_the_end(tiny.config(SETTINGS | {"train.threads": setting}), tmp_path / "run")
    assert threads_to_resume(RunFolder.open(tmp_path / "run")) == setting
    with threads(2):
        if refused:
            with pytest.raises(ConfigError, match=r"trained with 1 thread, but this process computes with 2"):
                run_to_the_end(tiny.config(LONGER), tmp_path / "run", resume=True)
        else:
            assert run_to_the_end(tiny.config(LONGER), tmp_path / "run", resume=True)[-1].step == 4


def test_threads_to_resume_are_those_of_the_newest_checkpoint_within_the_cores(
    tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder.create(tmp_path / "run")
    assert threads_to_resume(run) == 0
    with threads(2):
        list(train(tiny.config(SETTINGS), run))
    for cores, number in ((1, 0), (2, 2), (8, 2)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process, cores=cores: set(range(cores)), raising=False)
        assert threads_to_resume(run) == number
    state = run.checkpoints()[-1] / "training_state" / "state.json"
    damaged: list[Any] = ["[]", '{"threads": -1}', '{"threads": "2"}', '{"config": {"train": []}}', "{"]
    for text in damaged:
        state.write_text(text, encoding="utf-8")
        assert threads_to_resume(run) == 0
