"""A run that was stopped and resumed is, bit for bit, the run that was never stopped."""

import copy
import shutil
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer.train.loop
from glassformer.errors import CheckpointError, ConfigError
from glassformer.native.library import kernels
from glassformer.native.routes import arithmetic_of
from glassformer.storage.checkpoint import TrainingState
from glassformer.storage.manifest import digested, parse_digested
from glassformer.storage.run_folder import RunFolder
from glassformer.train import Finished, Started, parse_config, train
from glassformer.train.resume import _measured, _overrides
from glassformer.train.state import TrainState
from processor import LOW_PRECISION, PRECISIONS
from tiny_run import TinyRun, run_to_the_end, state_of

EVERYTHING = {
    "model.dropout": 0.2,
    "text.bpe_dropout": 0.1,
    "optimizer.schedule": "cosine",
    "optimizer.kind": "adamw",
    "optimizer.weight_decay": 0.1,
    "optimizer.clip_norm": 1.0,
    "train.accumulate": 2,
    "train.precision": LOW_PRECISION,
    "train.dropout_warmup_steps": 20,
    "train.ema": 0.9,
    "train.max_steps": 14,
    "train.save_every": 4,
    "train.log_every": 3,
    "train.keep_checkpoints": 2,
    "validation.every": 6,
    "validation.metric": "loss",
    "validation.max_sentences": 1,
    "decoding.max_extra": 2,
}
"""Every part whose state could be lost. An epoch ends within, and no two of the intervals fall together."""


class StoppedError(Exception):
    pass


@pytest.fixture(scope="module")
def undisturbed_run(tiny: TinyRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "undisturbed"
    run_to_the_end(tiny.config(EVERYTHING), path)
    return path


@pytest.fixture(scope="module")
def undisturbed(undisturbed_run: Path) -> dict[str, Any]:
    return state_of(undisturbed_run)


def go_on(tiny: TinyRun, path: Path, **changes: Any) -> list[Any]:
    settings = EVERYTHING | {name.replace("__", "."): value for name, value in changes.items()}
    return run_to_the_end(tiny.config(settings), path, resume=True)


def test_uninterrupted_run_uses_all_resumable_state(undisturbed: dict[str, Any], tiny: TinyRun) -> None:
    values = undisturbed["counters and batches"]
    assert values["counters"]["step"] == 14
    assert values["counters"]["best"] is not None
    assert values["batches"]["epoch"] >= 1
    assert undisturbed["best"][0] == f"step_{values['counters']['best_step']:08d}"
    assert [line["event"] for line in undisturbed["metrics"]].count("progress") == 7  # 3 4 6 8 9 12 14


@pytest.mark.parametrize("steps", [[1], [4, 5, 7], [2, 13, 14]])
def test_stopped_within_a_step(
    tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: dict[str, Any], steps: list[int]
) -> None:
    """After a stop in ``steps[0]`` it is resumed until ``steps[1]``, and so on."""
    run = RunFolder.create(tmp_path / "run")
    whole = glassformer.train.loop.train_step
    for number, step in enumerate(steps):

        def stopping(state: Any, *rest: Any, last: int = step) -> Any:
            done = whole(state, *rest)
            if state.counters.step == last:
                raise StoppedError
            return done

        with monkeypatch.context() as patched:
            patched.setattr(glassformer.train.loop, "train_step", stopping)
            with pytest.raises(StoppedError):
                list(train(tiny.config(EVERYTHING), run, resume=number > 0))
    go_on(tiny, run.path)
    assert state_of(run.path) == undisturbed


@pytest.mark.parametrize("events", [[2, 2, 4], [5, 1, 2, 2]])
def test_no_longer_listened_to(tiny: TinyRun, tmp_path: Path, undisturbed: dict[str, Any], events: list[int]) -> None:
    run = RunFolder.create(tmp_path / "run")
    for number, count in enumerate(events):
        going = train(tiny.config(EVERYTHING), run, resume=number > 0)
        assert len(list(islice(going, count))) == count
        going.close()
    go_on(tiny, run.path)
    assert state_of(run.path) == undisturbed


@pytest.mark.parametrize("moment", ["save", "set_best"])
def test_stopped_while_saving_the_last_and_best(
    tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: dict[str, Any], moment: str
) -> None:
    """Before the checkpoint is there, and before it is recorded as the best, which no later one then is."""
    assert undisturbed["best"][0] == "step_00000014"
    whole = getattr(RunFolder, moment)

    def stopping(run: RunFolder, which: Any, *rest: Any, **named: Any) -> Any:
        if which == 14 or getattr(which, "name", "") == "step_00000014":
            raise StoppedError
        return whole(run, which, *rest, **named)

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, moment, stopping)
        with pytest.raises(StoppedError):
            run_to_the_end(tiny.config(EVERYTHING), tmp_path / "run")
    go_on(tiny, tmp_path / "run")
    state = state_of(tmp_path / "run")
    for part in ("weights", "optimizer, random numbers, live weights", "counters and batches", "best"):
        assert state[part] == undisturbed[part]


def test_a_damaged_newest_checkpoint_is_gone_behind(
    tiny: TinyRun, tmp_path: Path, undisturbed_run: Path, undisturbed: dict[str, Any]
) -> None:
    shutil.copytree(undisturbed_run, tmp_path / "run")
    weights = tmp_path / "run" / "checkpoints" / "step_00000014" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    started, *_ = go_on(tiny, tmp_path / "run")
    assert started.step == 12
    assert state_of(tmp_path / "run")["weights"] == undisturbed["weights"]


def test_with_the_end_moved_the_longer_run_is_that_of_the_longer_limit(tiny: TinyRun, tmp_path: Path) -> None:
    short, long = {"train.max_steps": 5}, {"train.max_steps": 9}
    settings = {"train.save_every": 3, "model.dropout": 0.3, "data.validation": []}
    run_to_the_end(tiny.config(settings | long), tmp_path / "at once")
    run_to_the_end(tiny.config(settings | short), tmp_path / "in two")
    run_to_the_end(tiny.config(settings | long), tmp_path / "in two", resume=True)
    at_once, in_two = state_of(tmp_path / "at once"), state_of(tmp_path / "in two")
    assert at_once["weights"] == in_two["weights"]
    assert at_once["counters and batches"]["counters"]["step"] == 9


def test_a_recurrent_model_goes_on_bit_for_bit(tiny: TinyRun, tmp_path: Path) -> None:
    """Stopped behind step 4, the last one saved being 3."""
    changes = {"train.max_steps": 7, "train.save_every": 3, "train.log_every": 1, "train.ema": 0.9}
    model = {"kind": "recurrent", "d_model": 16, "d_hidden": 16, "n_decoder_layers": 1, "dropout": 0.2}
    config = parse_config(tiny.settings(changes | {"validation.max_sentences": 1}) | {"model": model})
    run_to_the_end(config, tmp_path / "undisturbed")
    run = RunFolder.create(tmp_path / "run")
    going = train(config, run)
    assert [event.step for event in islice(going, 5)] == [0, 1, 2, 3, 4]
    going.close()
    run_to_the_end(config, run.path, resume=True)
    assert state_of(run.path) == state_of(tmp_path / "undisturbed")


# When there is nothing to go on with, or not with these settings


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_model_trained_in_kernels_as_a_whole_goes_on_bit_for_bit(
    tiny: TinyRun, tmp_path: Path, precision: str
) -> None:
    """Wide enough for them: heads of 32, whole panels."""
    wide = {"model.d_model": 64, "model.d_ff": 64, "model.dropout": 0.2, "train.precision": precision}
    changes = wide | {"train.max_steps": 7, "train.save_every": 3, "train.log_every": 1, "train.ema": 0.9}
    config = tiny.config(changes | {"validation.max_sentences": 1})
    run_to_the_end(config, tmp_path / "whole")
    run = RunFolder.create(tmp_path / "parts")
    list(islice(train(config, run), 6))
    run_to_the_end(config, run.path, resume=True)
    assert state_of(run.path) == state_of(tmp_path / "whole")


WIDE = {"model.d_model": 64, "model.d_ff": 64, "train.save_every": 2, "data.validation": []}


def resume_without_routes(tiny: TinyRun, path: Path, changes: dict[str, Any]) -> None:
    """Two steps, saved as before routes were stored; then two more."""
    restore = TrainState.restore

    def early(state: TrainState, weights: Any, saved: TrainingState, origin: str) -> None:
        del saved.values["routes"]
        restore(state, weights, saved, origin)

    run_to_the_end(tiny.config(WIDE | changes | {"train.max_steps": 2}), path)
    with pytest.MonkeyPatch.context() as earlier:
        earlier.setattr(TrainState, "restore", early)
        run_to_the_end(tiny.config(WIDE | changes | {"train.max_steps": 4}), path, resume=True)


def test_a_state_without_routes_goes_on_bit_for_bit_if_all_parts_are_native(tiny: TinyRun, tmp_path: Path) -> None:
    if kernels() is None:
        pytest.skip("there are no kernels here")
    run_to_the_end(tiny.config(WIDE | {"train.max_steps": 4}), tmp_path / "undisturbed")
    resume_without_routes(tiny, tmp_path / "run", {})
    assert state_of(tmp_path / "run")["weights"] == state_of(tmp_path / "undisturbed")["weights"]


@pytest.mark.parametrize(
    "changes",
    [
        {"train.engine": "torch"},
        {"model.d_model": 16, "model.d_ff": 32},  # single operations
        {"model.activation": "silu"},
    ],
    ids=str,
)
def test_a_state_without_routes_is_refused_if_the_results_would_differ(
    tiny: TinyRun, tmp_path: Path, changes: dict[str, Any]
) -> None:
    message = (
        r"step_00000002: trained with the model by an earlier version, but .*; a run continues exactly only on the"
    )
    with pytest.raises(
        CheckpointError, match=rf"{message} same engine; resume with the glassformer version .*, or start a new run$"
    ):
        resume_without_routes(tiny, tmp_path / "run", changes)


def test_other_kernels_are_refused(tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums in another order are other weights, bit for bit."""
    path = tmp_path / "run"
    run_to_the_end(tiny.config({"train.max_steps": 1}), path)
    monkeypatch.setattr("glassformer.train.state.arithmetic_of", lambda *_: "0, of yesterday")
    with pytest.raises(
        CheckpointError, match=r"version .+, but this process has 0, of yesterday; a run continues exactly only"
    ):
        run_to_the_end(tiny.config({"train.max_steps": 2}), path, resume=True)


def test_a_translation_whose_padding_was_computed_is_refused(
    tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As former versions did, with other dropout."""
    if kernels() is None:
        pytest.skip("there are no kernels here")
    path, wide = tmp_path / "run", {"model.d_model": 64, "model.d_ff": 64}
    with monkeypatch.context() as patched:
        former = lambda *given: arithmetic_of(*given).removesuffix(", no padding")  # noqa: E731
        patched.setattr("glassformer.train.state.arithmetic_of", former)
        run_to_the_end(tiny.config({**wide, "train.max_steps": 1}), path)
    with pytest.raises(CheckpointError, match=r"but this process has .*, no padding; a run continues exactly only"):
        run_to_the_end(tiny.config({**wide, "train.max_steps": 2}), path, resume=True)


def test_resume_requires_the_device_kind_of_the_run(
    tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a GPU was added since, or where a run was moved from one that had a GPU."""
    path, told = (
        tmp_path / "run",
        r"trained on a %s, and a run continues exactly only there; set train\.device=%s, or start a new run$",
    )
    run_to_the_end(tiny.config({"train.max_steps": 1, "train.device": "auto"}), path)
    with monkeypatch.context() as patched:
        patched.setattr("torch.cuda.is_available", lambda: True)
        patched.setattr("torch.cuda.device_count", lambda: 1)
        patched.setattr("torch.cuda.current_device", lambda: 0)
        patched.setattr("torch.cuda.get_rng_state", lambda device: torch.zeros(16, dtype=torch.uint8))
        patched.setattr("torch.cuda.set_rng_state", lambda state, device: None)
        with pytest.raises(CheckpointError, match=told % ("CPU", "cpu")):
            run_to_the_end(tiny.config({"train.max_steps": 2, "train.device": "auto"}), path, resume=True)
        on_cpu = tiny.config({"train.max_steps": 2, "train.device": "cpu"})
        assert run_to_the_end(on_cpu, path, resume=True)[-1].step == 2
        snapshot = TrainState.snapshot
        with monkeypatch.context() as trained_on_gpu:
            trained_on_gpu.setattr(TrainState, "snapshot", lambda state: as_of_a_gpu(snapshot(state)))
            run_to_the_end(tiny.config({"train.max_steps": 3, "train.device": "cpu"}), path, resume=True)
    with pytest.raises(CheckpointError, match=told % ("GPU", "cuda")):
        run_to_the_end(tiny.config({"train.max_steps": 4}), path, resume=True)


def as_of_a_gpu(saved: TrainingState) -> TrainingState:
    return replace(saved, tensors=saved.tensors | {"random.cuda": torch.zeros(16, dtype=torch.uint8)})


def test_resume_refuses_changed_token_ids_of_the_same_text(tiny: TinyRun, tmp_path: Path) -> None:
    """Another tokenizers version might produce them. A checkpoint without a recorded digest still resumes."""
    path, changes = tmp_path / "run", {"data.cache": str(tmp_path / "cache"), "data.validation": []}
    run_to_the_end(tiny.config(changes | {"train.max_steps": 1}), path)
    (cache,) = (tmp_path / "cache").iterdir()
    data = bytearray((cache / "source.ids").read_bytes())
    data[0] ^= 1
    (cache / "source.ids").write_bytes(data)
    index = parse_digested((cache / "index.json").read_bytes())
    assert index is not None
    index["files"]["source.ids"] = sha256(data).hexdigest()
    (cache / "index.json").write_bytes(digested(index))
    longer = tiny.config(changes | {"train.max_steps": 2})
    with pytest.raises(CheckpointError, match=r"their token ids differ; .* or start a new run$"):
        run_to_the_end(longer, path, resume=True)
    restore = TrainState.restore

    def without_digest(state: TrainState, weights: Any, saved: TrainingState, origin: str) -> None:
        del saved.values["content"]
        restore(state, weights, saved, origin)

    with pytest.MonkeyPatch.context() as earlier:
        earlier.setattr(TrainState, "restore", without_digest)
        assert run_to_the_end(longer, path, resume=True)[-1].step == 2


def test_a_connection_lost_while_resuming_is_no_fault_of_the_checkpoint(
    tiny: TinyRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*_: Any) -> None:
        raise RuntimeError("[/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:4040")

    monkeypatch.setattr(TrainState, "_load", lose)
    with pytest.raises(RuntimeError, match="Connection closed by peer"):
        run_to_the_end(tiny.config(), tiny.run, resume=True)


def test_resume_of_a_finished_run_does_no_steps(tiny: TinyRun) -> None:
    before = state_of(tiny.run)
    started, finished = run_to_the_end(tiny.config(), tiny.run, resume=True)
    assert isinstance(started, Started)
    assert isinstance(finished, Finished)
    assert finished.reason == ("nothing is left to do: train.max_steps=160 is reached; raise that to train further")
    after = state_of(tiny.run)
    assert after.pop("metrics")[:-1] == before.pop("metrics")
    assert after == before


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"model.dropout": 0.3},
            r"^model\.dropout=0\.3, but the run began with 0\.1; resume with 0\.1, or start a new run$",
        ),
        ({"train.seed": 2}, r"^train\.seed=2, but the run began with 1;"),
        ({"optimizer.learning_rate": 0.02}, r"^optimizer\.learning_rate=0\.02, but the run began with 0\.01;"),
        ({"data.batch_tokens": 400}, r"^data\.batch_tokens=400, but"),
        ({"text.lowercase": True}, r"^text\.lowercase=True, but"),
    ],
)
def test_resume_refuses_changes_that_affect_the_weights(tiny: TinyRun, changes: dict[str, Any], told: str) -> None:
    written = (tiny.run / "config.toml").read_bytes()
    with pytest.raises(ConfigError, match=told):
        run_to_the_end(tiny.config(changes), tiny.run, resume=True)
    assert (tiny.run / "config.toml").read_bytes() == written


def test_resume_accepts_changes_that_do_not_affect_the_weights(tiny: TinyRun, tmp_path: Path) -> None:
    run_to_the_end(tiny.config({"train.max_steps": 2}), tmp_path / "run")
    changes = {
        "train.max_steps": 3,
        "validation.max_sentences": 1,
        "train.log_every": 1,
        "validation.every": 1,
        "decoding.beam_size": 3,
    }
    started, *_, finished = run_to_the_end(tiny.config(changes), tmp_path / "run", resume=True)
    assert finished.step == 3
    assert started.accounts[-1] == (
        "settings changed since the last checkpoint: train.max_steps 2 → 3, train.log_every 40 → 1, "
        "validation.every 80 → 1, validation.max_sentences 4 → 1, decoding.beam_size 2 → 3"
    )
    started, _ = run_to_the_end(tiny.config(changes), tmp_path / "run", resume=True)
    assert not any("settings changed" in line for line in started.accounts)


def test_a_best_measured_otherwise_is_forgotten(tiny: TinyRun, tmp_path: Path) -> None:
    settings = {"train.max_steps": 2, "validation.metric": "chrf", "validation.every": 1}
    run_to_the_end(tiny.config(settings), tmp_path / "run")
    settings |= {"train.max_steps": 3, "validation.metric": "loss"}
    run_to_the_end(tiny.config(settings), tmp_path / "run", resume=True)
    best = RunFolder.open(tmp_path / "run").best()
    assert best is not None
    assert best.metric == "loss"
    assert best.value < 0
    assert best.checkpoint.name == "step_00000003"


def test_other_text_under_the_same_name_is_refused(tiny: TinyRun, tmp_path: Path) -> None:
    corpus = {}
    for language in ("en", "fr"):
        corpus[language] = tmp_path / f"text.{language}"
        corpus[language].write_bytes((tiny.folder / f"train.{language}").read_bytes())
    settings = {"data.train": [str(tmp_path / "text")], "train.max_steps": 2}
    run_to_the_end(tiny.config(settings), tmp_path / "run")
    corpus["en"].write_text(corpus["en"].read_text().replace("the", "a", 1))
    with pytest.raises(
        CheckpointError, match=r"the training data have changed since the run began; restore them, or start a new run$"
    ):
        run_to_the_end(tiny.config(settings | {"train.max_steps": 3}), tmp_path / "run", resume=True)


def test_two_trainings_in_one_run_are_refused(tiny: TinyRun, tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run")
    first = train(tiny.config({"train.max_steps": 2}), run)
    next(first)
    with pytest.raises(CheckpointError, match=r"run: is being trained by process \d+; wait for it"):
        next(train(tiny.config(), run, resume=True))
    assert list(first)[-1].step == 2


def test_a_run_that_exists_is_not_begun_again(tiny: TinyRun) -> None:
    with pytest.raises(CheckpointError, match=r"run: holds a run already; go on with --resume, or name another"):
        RunFolder.create(tiny.run)


def test_a_start_that_failed_can_be_repeated(tiny: TinyRun, tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run")
    with pytest.raises(ConfigError, match="vocab_size"):
        list(train(tiny.config({"model.vocab_size": 7}), run))
    assert not run.path.exists()
    assert list(train(tiny.config({"train.max_steps": 1}), run))[-1].step == 1
    with pytest.raises(CheckpointError, match="holds a run already"):
        list(train(tiny.config(), run))
    assert state_of(run.path)["counters and batches"]["counters"]["step"] == 1


def test_resume_reports_a_damaged_newest_checkpoint(tiny: TinyRun, undisturbed_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(undisturbed_run, path)
    newest = RunFolder(path).checkpoints()[-1]
    weights = newest / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    started = go_on(tiny, path)[0]
    assert isinstance(started, Started)
    assert started.step < 14
    assert len(started.warnings) == 1
    assert str(newest) in started.warnings[0]


def test_best_checkpoint_stays_best_after_new_decoding_settings(tiny: TinyRun) -> None:
    now = tiny.config().model_dump(mode="json")
    before = copy.deepcopy(now)
    del before["decoding"]["max_source"], before["decoding"]["long_source"]
    assert _measured(now, "13a") == _measured(before, "13a")
    now["decoding"]["max_source"] = 100
    assert _measured(now, "13a") != _measured(before, "13a")


def test_run_of_an_earlier_version_is_resumed(tiny: TinyRun, tmp_path: Path) -> None:
    """Defaults of newer settings change nothing."""
    config = tiny.config()
    before = config.model_dump(mode="json")
    del before["text"]["byte_fallback"], before["data"]["validation_share"]
    assert _overrides(config, before, 0) == []
    changed = tiny.config({"data.validation": [], "data.validation_share": 0.1})
    with pytest.raises(ConfigError, match=r"^data\.validation_share=.* began with a version of glassformer without"):
        _overrides(changed, before, 0)


def test_resume_names_a_default_that_changed(tiny: TinyRun) -> None:
    config = tiny.config()
    before = config.model_dump(mode="json")
    before["optimizer"]["epsilon"] = 1e-7
    fault = r"^optimizer.epsilon is not set, and its default 1e-09 differs from the 1e-07"
    with pytest.raises(ConfigError, match=fault):
        _overrides(config, before, 0)
