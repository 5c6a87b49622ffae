"""Shards that are mapped at a time: few, each verified once; and a limit of the process is no damage."""

import hashlib
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from glassformer.data.shards import shard_set
from glassformer.data.shards.shard_index import ShardIndex
from glassformer.errors import DataError
from shard_tasks import batches_of, config_of, epoch, prepared, samples_of, settings


@pytest.fixture
def allow_more_files() -> Iterator[Callable[[int], None]]:
    """Limit the open files of this process to so many more than it has."""
    limits, opened = resource.getrlimit(resource.RLIMIT_NOFILE), [os.dup(0)]

    def allow(count: int) -> None:
        highest = max(map(int, os.listdir("/proc/self/fd")))
        while opened[-1] <= highest:  # numbers below the limit must not be free
            opened.append(os.dup(0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (opened[-1] + 1 + count, limits[1]))

    yield allow
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    for descriptor in opened:
        os.close(descriptor)


@pytest.mark.parametrize("task", ["translation", "language"])
def test_more_shards_than_open_files_are_read_and_verified_once(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allow_more_files: Callable[[int], None]
) -> None:
    values = settings(task, tmp_path)
    prepared(values, tmp_path / "shards", 100)
    config = config_of(values, shards=str(tmp_path / "shards"), on_corrupt="skip")
    expected = [samples_of(batch) for batch in epoch(batches_of(config))]
    verified = list[str]()

    def counted(file: IO[bytes], algorithm: str) -> Any:
        verified.append(Path(str(file.name)).name)
        return hashlib.file_digest(file, algorithm)

    monkeypatch.setattr(shard_set, "file_digest", counted)
    loader = batches_of(config)
    allow_more_files(6)
    assert [samples_of(batch) for batch in epoch(loader)] == expected
    assert len(list(epoch(loader))) > 4
    assert loader.new_corrupt() == []
    names = [shard.name for shard in ShardIndex.read(tmp_path / "shards").shards]
    assert len(names) > 20 and sorted(verified) == names


def test_a_limit_on_open_files_is_an_error_and_never_a_corrupt_shard(
    tmp_path: Path, allow_more_files: Callable[[int], None]
) -> None:
    values = settings("masked", tmp_path)
    prepared(values, tmp_path / "shards")
    loader = batches_of(config_of(values, shards=str(tmp_path / "shards"), on_corrupt="skip"))
    allow_more_files(0)
    with pytest.raises(DataError, match=r"00000000.shard: cannot be opened \(Too many open files\); raise .*ulimit -n"):
        loader.next()
    assert loader.new_corrupt() == []


def test_a_shard_that_was_changed_since_it_was_verified_is_verified_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_set, "MAX_MAPPED", 2)
    monkeypatch.setattr(shard_set, "RETRY_SECONDS", ())
    loader = batches_of(prepared(settings("masked", tmp_path), tmp_path / "shards"))
    list(epoch(loader))
    path = tmp_path / "shards" / "00000001.shard"
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    with pytest.raises(DataError, match=r"00000001.shard: is damaged: its SHA-256"):
        list(epoch(loader))
    path.unlink()
    with pytest.raises(DataError, match=r"00000001.shard: is missing"):
        list(epoch(loader))
