"""Damaged and missing shards are found, named, and skipped only if the configuration says so."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import IO, Any

import pytest

from glassformer.data.shards import shard_set
from glassformer.data.shards.shard_index import ShardIndex
from glassformer.errors import DataError
from glassformer.storage.manifest import digested
from glassformer.storage.run_folder import RunFolder
from glassformer.train import RunConfig, events
from shard_tasks import SETTINGS, batches_of, config_of, epoch, multiset, prepared, samples_of, settings


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_set, "RETRY_SECONDS", (0.0, 0.0))


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 16
    path.write_bytes(data)


def read_all(config: RunConfig) -> None:
    for _ in epoch(batches_of(config)):
        pass


@pytest.mark.parametrize("task", SETTINGS)
def test_a_flipped_bit_in_any_file_is_found_and_named(task: str, tmp_path: Path) -> None:
    config = prepared(settings(task, tmp_path), tmp_path / "shards", 1000)
    files = sorted((tmp_path / "shards").iterdir())
    assert len(files) > 3
    for path in files:
        whole = path.read_bytes()
        for place in (0, 40, len(whole) // 2, len(whole) - 1):
            flip(path, place)
            with pytest.raises(Exception, match=path.name) as error:
                read_all(config)
            assert type(error.value).__name__ in ("DataError", "CheckpointError") and "\n" not in str(error.value)
            path.write_bytes(whole)
    read_all(config)


def test_a_missing_or_short_shard_is_named_with_the_way_out(tmp_path: Path) -> None:
    config = prepared(settings("masked", tmp_path), tmp_path / "shards")
    path = tmp_path / "shards" / "00000002.shard"
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(DataError, match=r"00000002.shard: is damaged: it has [\d,]+ bytes and not [\d,]+; copy it"):
        read_all(config)
    path.unlink()
    with pytest.raises(DataError, match=r"shard: is missing; .* data.on_corrupt=skip to train without its \d+ samples"):
        read_all(config)
    path.mkdir()
    with pytest.raises(DataError, match=r"00000002.shard: is missing"):
        read_all(config)


@pytest.mark.parametrize(
    ("task", "shard_tokens", "content"),
    [("masked", 1, "1 sample"), ("masked", 400, "[2-9][0-9]* samples"), ("language", 400, "400 tokens")],
)
def test_what_a_shard_holds_is_named_as_the_task_counts_it(
    task: str, shard_tokens: int, content: str, tmp_path: Path
) -> None:
    config = prepared(settings(task, tmp_path), tmp_path / "shards", shard_tokens)
    (tmp_path / "shards" / "00000002.shard").unlink()
    with pytest.raises(DataError, match=f"train without its {content}$"):
        read_all(config)


def test_a_shard_that_is_whole_at_the_second_look_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = prepared(settings("masked", tmp_path), tmp_path / "shards")
    looks: dict[str, int] = {}

    def late(file: IO[bytes], algorithm: str) -> Any:
        name = Path(file.name).name
        looks[name] = looks.get(name, 0) + 1
        whole = looks[name] == 3 or name != "00000001.shard"
        return hashlib.file_digest(file, algorithm) if whole else hashlib.sha256()

    monkeypatch.setattr(shard_set, "file_digest", late)
    read_all(config)
    assert looks.pop("00000001.shard") == 3
    assert set(looks.values()) == {1}


@pytest.mark.parametrize("task", SETTINGS)
def test_skipping_leaves_out_the_samples_of_the_shard_and_counts_them(task: str, tmp_path: Path) -> None:
    values = settings(task, tmp_path)
    config = prepared(values, tmp_path / "shards")
    everything = multiset(epoch(batches_of(config)))
    path = tmp_path / "shards" / "00000001.shard"
    flip(path, 100)
    skipping = config_of(values, shards=str(tmp_path / "shards"), on_corrupt="skip")
    loader = batches_of(skipping)
    found = multiset(epoch(loader))
    (corrupt,) = loader.new_corrupt()
    assert loader.new_corrupt() == []
    assert (corrupt.path, corrupt.reason) == (str(path), "is damaged: its SHA-256 is not the one in the index")
    index = ShardIndex.read(tmp_path / "shards")
    assert corrupt.samples == index.shards[1].samples
    assert found < everything
    missing = (everything - found).total()
    if task == "language":  # windows, of which a shard of 400 tokens has a part of each of 25 or 26
        assert 25 <= missing <= 27
    else:
        assert missing == corrupt.samples


def test_a_position_means_the_same_without_a_shard(tmp_path: Path) -> None:
    values = settings("masked", tmp_path)
    prepared(values, tmp_path / "shards")
    flip(tmp_path / "shards" / "00000001.shard", 100)
    config = config_of(values, shards=str(tmp_path / "shards"), on_corrupt="skip")
    loader, states, batches = batches_of(config), [], []
    for _ in range(40):
        states.append(loader.state())
        batches.append(samples_of(loader.next()))
    for start in (3, 17, 31):
        resumed = batches_of(config)
        resumed.restore(states[start])
        assert [samples_of(resumed.next()) for _ in range(8)] == batches[start : start + 8]


def test_without_an_intact_shard_training_stops(tmp_path: Path) -> None:
    values = settings("masked", tmp_path)
    prepared(values, tmp_path / "shards")
    for path in (tmp_path / "shards").glob("*.shard"):
        path.write_bytes(b"")
    with pytest.raises(DataError, match=r"every shard is corrupt"):
        read_all(config_of(values, shards=str(tmp_path / "shards"), on_corrupt="skip"))


@pytest.mark.parametrize(("task", "unit"), [("masked", "samples"), ("language", "tokens")])
def test_training_reports_a_skipped_shard_in_its_metrics(task: str, unit: str, tmp_path: Path) -> None:
    values = settings(task, tmp_path)
    prepared(values, tmp_path / "shards")
    (tmp_path / "shards" / "00000001.shard").unlink()
    config = config_of(values, shards=str(tmp_path / "shards"), on_corrupt="skip")
    seen = [event for event in events(config, tmp_path / "run") if type(event).__name__ == "Corrupt"]
    (line,) = [line for line in RunFolder.open(tmp_path / "run").metrics() if line["event"] == "corrupt"]
    assert (line["shard"], line["reason"]) == (str(tmp_path / "shards" / "00000001.shard"), "is missing")
    assert [line["samples"]] == [event.samples for event in seen]  # type: ignore[union-attr]
    entry = ShardIndex.read(tmp_path / "shards").shards[1]
    assert line["content"] == f"{getattr(entry, unit):,} {unit}"  # a sample of a stream may go on in the next shard
    with pytest.raises(DataError, match="is missing"):
        list(events(config_of(values, shards=str(tmp_path / "shards")), tmp_path / "other"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "has format version 2, and this version reads 1; prepare the shards again"),
        ({"format": "x"}, "is not the index of a folder of shards"),
        ({"shards": [{"name": "x"}]}, "is not complete"),
        ({"dtype": "<f8"}, "is not complete"),
        ({"columns": None}, "is not complete"),
    ],
)
def test_an_index_that_is_none_is_one_line(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    config = prepared(settings("masked", tmp_path), tmp_path / "shards")
    path = tmp_path / "shards" / "index.json"
    values = json.loads(path.read_bytes())
    values.pop("digest")
    path.write_bytes(digested(values | change))
    with pytest.raises(DataError, match=message) as error:
        batches_of(config)
    assert "\n" not in str(error.value) and str(path) in str(error.value)


def test_a_copied_folder_gives_the_same_batches(tmp_path: Path) -> None:
    values = settings("tagging", tmp_path)
    config = prepared(values, tmp_path / "shards")
    shutil.copytree(tmp_path / "shards", tmp_path / "copy")
    copied = config_of(values, shards=str(tmp_path / "copy"))
    assert batches_of(config).fingerprint == batches_of(copied).fingerprint
    expected = [samples_of(batch) for batch in epoch(batches_of(config))]
    assert [samples_of(batch) for batch in epoch(batches_of(copied))] == expected
