"""Training from shards, resumed to the bit, validated, and planned."""

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
from process_group import Job, train_in_group

import glassformer
from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.storage.run_folder import RunFolder
from glassformer.train import RunConfig, events
from shard_tasks import SETTINGS, config_of, prepared, settings
from tiny_run import CLOCK


def with_train(config: RunConfig, **values: Any) -> RunConfig:
    return config.model_copy(update={"train": config.train.model_copy(update=values)})


def weights(run: Path) -> bytes:
    return (RunFolder.open(run).checkpoints()[-1] / "model.safetensors").read_bytes()


def metrics(run: Path) -> list[dict[str, Any]]:
    lines = [line for line in RunFolder.open(run).metrics() if line["event"] in ("progress", "validated")]
    return [{name: value for name, value in line.items() if name not in CLOCK} for line in lines]


@pytest.mark.parametrize("task", SETTINGS)
def test_a_resumed_training_is_equal_to_the_bit(task: str, tmp_path: Path) -> None:
    config = prepared(settings(task, tmp_path), tmp_path / "shards")
    list(events(config, tmp_path / "whole"))
    list(events(with_train(config, max_steps=5), tmp_path / "stopped"))
    list(events(config, tmp_path / "stopped", resume=True))
    assert weights(tmp_path / "stopped") == weights(tmp_path / "whole")
    assert metrics(tmp_path / "stopped")[-1] == metrics(tmp_path / "whole")[-1]
    assert len(RunFolder.open(tmp_path / "whole").checkpoints()) == 3


@pytest.mark.parametrize("task", SETTINGS)
def test_validation_reads_its_files(task: str, tmp_path: Path) -> None:
    values = settings(task, tmp_path)
    values["data"]["validation"] = values["data"]["train"][:1]
    values["validation"] = {"every": 6}
    prepared(values, tmp_path / "shards")
    result = glassformer.train(config_of(values, shards=str(tmp_path / "shards")), tmp_path / "run")
    assert result.scores and result.best is not None
    model = result.load()
    assert type(model).__name__ in ("Translator", "Generator", "Filler", "Classifier", "Tagger")


def test_labels_have_the_order_of_training_from_files(tmp_path: Path) -> None:
    values = settings("classification", tmp_path)
    config = prepared(values, tmp_path / "shards")
    found = [
        glassformer.train(with_train(one, max_steps=1), tmp_path / f"run-{number}").load().labels
        for number, one in enumerate([config, config_of(values)])
    ]
    assert found[0] == found[1] == ("loud", "mute", "quiet")


def test_training_needs_the_shards_and_not_the_files(tmp_path: Path) -> None:
    config = prepared(settings("translation", tmp_path), tmp_path / "shards")
    for path in tmp_path.glob("train.*"):
        path.unlink()
    list(events(with_train(config, max_steps=1), tmp_path / "run"))


def test_a_run_starts_from_shards_of_its_tokenizer_only(tmp_path: Path) -> None:
    values = settings("masked", tmp_path)
    config = with_train(prepared(values, tmp_path / "shards"), max_steps=1)
    list(events(config, tmp_path / "first"))
    begun = copy.deepcopy(values)
    begun["train"] |= {"start_from": str(tmp_path / "first"), "max_steps": 1}
    list(events(config_of(begun, shards=str(tmp_path / "shards")), tmp_path / "second"))
    other = copy.deepcopy(values)
    other["text"]["vocab_size"] = 100
    prepared(other, tmp_path / "others")
    with pytest.raises(DataError, match=r"was prepared with another tokenizer .* as train.start_from"):
        list(events(config_of(begun, shards=str(tmp_path / "others")), tmp_path / "third"))
    prepared(begun, tmp_path / "again")  # with the tokenizer of the run
    list(events(config_of(begun, shards=str(tmp_path / "again")), tmp_path / "fourth"))


def test_other_shards_and_windows_cannot_resume_a_run(tmp_path: Path) -> None:
    values = settings("masked", tmp_path)
    config = with_train(prepared(values, tmp_path / "shards"), max_steps=4)
    list(events(config, tmp_path / "run"))
    with pytest.raises(ConfigError, match=r"data.bucket_window=32, but the run began with 64"):
        list(
            events(config_of(values, shards=str(tmp_path / "shards"), bucket_window=32), tmp_path / "run", resume=True)
        )
    prepared(values, tmp_path / "larger", shard_tokens=700)
    with pytest.raises(CheckpointError, match="the training data have changed since the run began"):
        list(events(config_of(values, shards=str(tmp_path / "larger")), tmp_path / "run", resume=True))
    (tmp_path / "shards").rename(tmp_path / "moved")
    list(events(config_of(values, shards=str(tmp_path / "moved")), tmp_path / "run", resume=True))


def test_processes_share_the_batches_of_one_and_resume_as_another_number(tmp_path: Path) -> None:
    values = {}
    for task in SETTINGS:
        (tmp_path / task).mkdir()
        one = settings(task, tmp_path / task)
        prepared(one, tmp_path / task / "shards")
        one["data"]["shards"] = str(tmp_path / task / "shards")
        one["train"] |= {"log_every": 1, "engine": "torch"}
        values[task] = one

    def jobs(name: str, max_steps: int, resume: bool = False) -> list[Job]:
        steps = {task: {**one, "train": one["train"] | {"max_steps": max_steps}} for task, one in values.items()}
        return [Job(one, tmp_path / f"{task}-{name}", resume) for task, one in steps.items()]

    for size, work in ((1, jobs("one", 12)), (2, jobs("changed", 5)), (1, jobs("changed", 9, resume=True))):
        assert train_in_group(size, work, tmp_path / f"group-{size}-{work[0].resume}") == [[""] * size] * 5
    assert train_in_group(2, jobs("changed", 12, resume=True), tmp_path / "group") == [[""] * 2] * 5
    for task in SETTINGS:
        one, changed = ([line["loss"] for line in metrics(tmp_path / f"{task}-{name}")] for name in ("one", "changed"))
        assert len(one) == 12
        assert changed == pytest.approx(one, rel=1e-4)  # in float32, over twelve steps


def test_a_shard_that_one_machine_lacks_ends_all_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    one = settings("masked", tmp_path / "a")
    prepared(one, tmp_path / "a" / "shards")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (tmp_path / "b" / "shards" / "00000002.shard").unlink()
    one["data"]["shards"] = "shards"
    monkeypatch.chdir(tmp_path / "a")
    job = Job(one, tmp_path / "run", folders={"1": str(tmp_path / "b")})
    ((first, second),) = train_in_group(2, [job], tmp_path / "group")
    assert "shards/00000002.shard: is missing" in second
    assert "process 1: shards/00000002.shard: is missing" in first
