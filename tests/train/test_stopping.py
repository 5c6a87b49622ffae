"""When a run ends by itself, what it leaves behind, and what it never does."""

import json
import pickle
import socket
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer.train.loop
import glassformer.train.step
from glassformer.errors import ConfigError, DataError
from glassformer.predict.translator import Translator
from glassformer.storage.run_folder import RunFolder
from glassformer.train import Finished, Progress, Started, Validated, read_config
from tiny_run import TinyRun, run_to_the_end


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Validations score what is given to it, one after the other."""

    def score(*values: float) -> None:
        left = list(values)
        monkeypatch.setattr(
            glassformer.train.loop, "without_dropout", lambda *_: {"nll": 1.0, "bleu": left.pop(0), "chrf": 0.0}
        )

    return score


def test_patience_ends_the_run_with_the_best_checkpoint(tiny: TinyRun, tmp_path: Path, scored: Any) -> None:
    scored(10.0, 30.0, 20.0, 30.0, 25.0, 99.0)
    settings = {"validation.every": 2, "validation.patience": 3, "train.keep_checkpoints": 1}
    events = run_to_the_end(tiny.config(settings), tmp_path / "run")
    assert [event.best for event in events if isinstance(event, Validated)] == [True, True, False, False, False]
    assert events[-1].step == 10
    assert events[-1].reason == "bleu has not improved in validation.patience=3 validations"
    run = RunFolder.open(tmp_path / "run")
    assert [path.name for path in run.checkpoints()] == ["step_00000004", "step_00000010"]
    best = run.best()
    assert best is not None
    assert (best.checkpoint.name, best.value) == ("step_00000004", 30.0)

    _, finished = run_to_the_end(tiny.config(settings), tmp_path / "run", resume=True)
    assert finished.step == 10
    assert finished.reason.startswith("nothing is left to do: bleu has not improved in validation.patience=3")


def test_a_score_that_is_not_a_number_is_never_the_best(tiny: TinyRun, tmp_path: Path, scored: Any) -> None:
    scored(float("nan"), 1.0)
    settings = {"validation.every": 1, "train.max_steps": 2}
    events = run_to_the_end(tiny.config(settings), tmp_path / "run")
    assert [event.best for event in events if isinstance(event, Validated)] == [False, True]


def test_max_steps_counts_from_the_first_step_of_all(tiny: TinyRun, tmp_path: Path) -> None:
    short = {"train.max_steps": 3, "data.validation": []}
    assert run_to_the_end(tiny.config(short), tmp_path / "run")[-1].step == 3
    started, *_, finished = run_to_the_end(tiny.config(short | {"train.max_steps": 4}), tmp_path / "run", resume=True)
    assert isinstance(started, Started)
    assert started.step == 3
    assert isinstance(finished, Finished)
    assert finished.step == 4
    assert finished.reason == "train.max_steps=4 is reached"


def test_max_seconds_counts_training_only(tiny: TinyRun, tmp_path: Path) -> None:
    settings = {"train.max_seconds": 1e-6, "data.validation": []}
    assert run_to_the_end(tiny.config(settings), tmp_path / "run")[-1].reason == "train.max_seconds=1e-06 is reached"
    _, finished = run_to_the_end(tiny.config(settings), tmp_path / "run", resume=True)
    assert finished.step == 1


def test_events_in_metrics_and_first_lines(tiny: TinyRun) -> None:
    """``metrics.jsonl`` holds each event; the last lines of the account say what was read."""
    lines = [json.loads(line) for line in (tiny.run / "metrics.jsonl").read_text().splitlines()]
    kinds = [line["event"] for line in lines[:7]]
    assert kinds == ["started", "progress", "progress", "validated", "progress", "progress", "validated"]
    started, *progress = (line for line in lines[:7] if line["event"] != "validated")
    assert f"{tiny.folder}/train: 300 read, 300 kept" in started["accounts"]
    assert [line["step"] for line in progress] == [40, 80, 120, 160]
    assert progress[-1]["nll"] < progress[0]["nll"] - 0.5
    assert set(progress[0]) >= set(Progress.__annotations__)
    parameters = sum(p.numel() for p in tiny.translator.models[0].parameters())
    assert started["parameters"] == parameters


def test_stored_configuration_is_complete(tiny: TinyRun) -> None:
    stored = read_config(tiny.run / "config.toml")
    assert stored == tiny.config()


def test_learned_positions_must_reach_as_far_as_the_text(tiny: TinyRun) -> None:
    told = (
        r"data\.max_length=256 is more than the model\.max_length=20 learned positions; "
        r"lower the first or raise the second$"
    )
    with pytest.raises(ConfigError, match=told):
        tiny.config({"model.positions": "learned", "model.max_length": 20})


def test_a_validation_of_learned_positions_does_not_run_past_them(tiny: TinyRun, tmp_path: Path) -> None:
    """An untrained model does not end its sentences; its positions end here before the limit on length does."""
    settings = {
        "model.positions": "learned",
        "model.max_length": 40,
        "data.max_length": 40,
        "decoding.max_extra": 60,
        "train.max_steps": 1,
    }
    assert run_to_the_end(tiny.config(settings), tmp_path / "run")[-1].step == 1


@pytest.mark.parametrize(
    "fault",
    [
        lambda: torch.empty(1 << 55),  # what this system says by itself
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 1 bytes"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        MemoryError(),
    ],
)
def test_batch_beyond_memory_is_a_one_line_error(
    tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Any
) -> None:
    def full(*_: Any) -> None:
        if isinstance(fault, Exception):
            raise fault
        fault()

    monkeypatch.setattr(glassformer.train.tasks.translation, "projection_loss", full)
    with pytest.raises(ConfigError, match=r"does not fit in memory; lower data\.batch_tokens=500 and raise train\.acc"):
        run_to_the_end(tiny.config(), tmp_path / "run")


def test_another_fault_of_memory_is_not_taken_for_a_batch_too_large(
    tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def astray(*_: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(glassformer.train.tasks.translation, "projection_loss", astray)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        run_to_the_end(tiny.config(), tmp_path / "run")


@pytest.mark.parametrize("device", ["gpu", "cuda"])
def test_missing_device_is_a_one_line_error(tiny: TinyRun, tmp_path: Path, device: str) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(ConfigError, match=rf"^train\.device='{device}'.*; choose auto"):
        run_to_the_end(tiny.config({"train.device": device}), tmp_path / "run")


def test_training_opens_no_socket_and_unpickles_no_data(
    tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From reading the text to resuming and translating."""

    def forbidden(*arguments: Any, **options: Any) -> Any:
        raise AssertionError(f"called with {arguments} {options}")

    for module, names in {
        socket: ("socket", "create_connection", "getaddrinfo"),
        pickle: ("load", "loads", "Unpickler"),
        torch: ("load", "save"),
    }.items():
        for name in names:
            monkeypatch.setattr(module, name, forbidden)
    settings = {"train.max_steps": 2, "data.cache": str(tmp_path / "cache"), "validation.every": 1}
    run_to_the_end(tiny.config(settings), tmp_path / "run")
    run_to_the_end(tiny.config(settings | {"train.max_steps": 3}), tmp_path / "run", resume=True)
    assert len(Translator.load(tmp_path / "run").translate(["the cat sleeps", ""])) == 2


def test_validation_line_beyond_learned_positions_is_an_early_error(tiny: TinyRun, tmp_path: Path) -> None:
    settings = {"model.positions": "learned", "model.max_length": 6, "data.max_length": 6, "train.max_steps": 1}
    told = r"^data\.validation, pair \d+: \d+ tokens are more than the model\.max_length=6 learned positions; shorten"
    with pytest.raises(DataError, match=told):
        run_to_the_end(tiny.config(settings), tmp_path / "run")
    assert RunFolder(tmp_path / "run").checkpoints() == []


@pytest.mark.parametrize("device", ["meta", "mps", "nonsense"])
def test_unusable_device_is_a_one_line_error(tiny: TinyRun, tmp_path: Path, device: str) -> None:
    with pytest.raises(ConfigError, match=rf"^train\.device='{device}' is not a device.*choose auto, cpu or cuda$"):
        run_to_the_end(tiny.config({"train.device": device}), tmp_path / "run")


def test_the_validation_at_the_last_step_does_not_try_the_patience(
    tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a run stopped at a limit and taken further would lose patience earlier than one that went through."""
    scores = {"nll": 1.0, "bleu": 1.0, "chrf": 0.0}
    monkeypatch.setattr(glassformer.train.loop, "without_dropout", lambda *_: scores)
    settings = {"validation.every": 2, "validation.patience": 2, "train.max_steps": 3}
    assert "max_steps" in run_to_the_end(tiny.config(settings), tmp_path / "run")[-1].reason
    events = run_to_the_end(tiny.config(settings | {"train.max_steps": 9}), tmp_path / "run", resume=True)
    assert events[-1].step == 6
    assert "patience" in events[-1].reason
