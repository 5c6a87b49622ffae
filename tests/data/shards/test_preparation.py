"""Shards from files: equal for any number of processes and any format, of one tokenizer, and refused in one line."""

import errno
import fcntl
import gzip
import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import zstandard
from pyarrow import parquet

from glassformer.data import DataConfig, prepare
from glassformer.data.shards import document_samples
from glassformer.data.shards.document_samples import MaskedSamples
from glassformer.data.shards.samples import Encoded
from glassformer.data.shards.shard_index import ShardIndex
from glassformer.data.shards.shard_set import ShardSet
from glassformer.errors import ConfigError, DataError
from glassformer.text import TokenizerPair
from glassformer.train import events, prepare_shards
from shard_tasks import SETTINGS, batches_of, config_of, epoch, multiset, prepared, settings


def shards_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.shard")}


@pytest.mark.parametrize("task", SETTINGS)
def test_the_number_of_processes_does_not_change_the_bytes(task: str, tmp_path: Path) -> None:
    values = settings(task, tmp_path)
    prepared(values, tmp_path / "one", processes=1)
    prepared(values, tmp_path / "three", processes=3)
    files = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "three").iterdir()}
    assert {"index.json", "tokenizer.json", "00000003.shard"} <= set(files)


def test_the_account_is_that_of_training_from_files(tmp_path: Path) -> None:
    values = settings("translation", tmp_path)
    config = prepared(values, tmp_path / "shards")
    index = ShardIndex.read(tmp_path / "shards")
    tokenizers = TokenizerPair.load(tmp_path / "shards" / "tokenizer.json")
    assert isinstance(config.data, DataConfig)
    corpus = prepare(config.data, config.data.train, tokenizers)
    assert index.account.files == corpus.account.files
    assert index.account.dropped["empty"] == 2
    assert (index.account.source.tokens, index.account.target.unknown) == (
        corpus.account.source.tokens,
        corpus.account.target.unknown,
    )
    assert index.tokens == corpus.account.source.tokens + corpus.account.target.tokens
    assert index.samples == len(corpus) == index.account.kept
    assert [one.samples for one in index.sets] == [298, 50]


def test_duplicates_are_dropped_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.data.readers.CHUNK_ROWS", 8)
    values = settings("translation", tmp_path)
    for language in ("en", "de"):
        path = tmp_path / f"train.{language}"
        path.write_text(path.read_text() * 2)
    values["data"]["drop_duplicates"] = True
    expected = multiset(epoch(batches_of(config_of(values))))
    config = prepared(values, tmp_path / "shards")
    assert multiset(epoch(batches_of(config))) == expected
    assert ShardIndex.read(tmp_path / "shards").account.dropped["duplicate"] >= 298


@pytest.mark.parametrize("task", ["language", "masked"])
@pytest.mark.parametrize("documents", ["file", "line", "blank_line"])
def test_long_and_faulty_documents_are_those_of_training_from_files(
    task: str, documents: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"CHUNK_ROWS": 8, "CHUNK_CHARACTERS": 400, "SPOOL_BYTES": 100, "BLOCK": 50}.items():
        monkeypatch.setattr(document_samples, name, value)
    values = settings(task, tmp_path)
    (tmp_path / "bad.txt").write_bytes(b"ba be bi\n\xff\xfe\xfa\nbo bu\n\nda de\n" * 9)
    (tmp_path / "empty.txt").write_text("")
    values["data"] |= {"documents": documents, "train": [*values["data"]["train"], str(tmp_path / "*.txt")]}
    files = batches_of(config_of(values))
    expected = multiset(epoch(files))
    assert multiset(epoch(batches_of(prepared(values, tmp_path / "shards")))) == expected


@pytest.mark.parametrize("task", ["language", "masked", "translation"])
def test_held_out_examples_are_not_in_the_shards(task: str, tmp_path: Path) -> None:
    values = settings(task, tmp_path)
    values["data"]["validation_share"] = 0.2
    expected = multiset(epoch(batches_of(config_of(values))))
    assert multiset(epoch(batches_of(prepared(values, tmp_path / "shards")))) == expected


def test_streams_with_weights_are_one_for_each_path(tmp_path: Path) -> None:
    values = settings("language", tmp_path)
    values["data"]["weights"] = [2.0, 1.0]
    files, shards = batches_of(config_of(values)), batches_of(prepared(values, tmp_path / "shards"))
    assert multiset(epoch(shards)) == multiset(epoch(files))


def _jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def _parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=37)
    return path


def _gzip(path: Path) -> Path:
    compressed = path.with_name(path.name + ".gz")
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    return compressed


def _zstd(path: Path) -> Path:
    """Two frames, of which the reader sees the border."""
    data, compressed = path.read_bytes(), path.with_name(path.name + ".zst")
    frames = [zstandard.compress(part) for part in (data[: len(data) // 3], data[len(data) // 3 :])]
    compressed.write_bytes(b"".join(frames))
    return compressed


def _formats(task: str, folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Settings that name the same examples in each format, and the name of the format."""
    values = settings(task, folder)
    if task == "tagging":
        blocks = (folder / "train.conll").read_text().strip().split("\n\n")
        pairs = [[line.split() for line in block.splitlines()] for block in blocks]
        rows = [{"tokens": [a for a, _ in pair], "tags": [b for _, b in pair]} for pair in pairs]
        first = folder / "train.conll"
    elif task == "classification":
        lines = (folder / "train.tsv").read_text().splitlines()
        rows = [dict(zip(lines[0].split("\t"), line.split("\t"), strict=True)) for line in lines[1:]]
        first = folder / "train.tsv"
    elif task == "translation":
        sides = [(folder / f"train.{code}").read_text().splitlines() for code in ("en", "de")]
        rows = [{"en": a, "de": b} for a, b in zip(*sides, strict=True)]
        first = folder / "all.tsv"
        first.write_text("".join(f"{row['en']}\t{row['de']}\n" for row in rows))
    else:
        rows = [{"text": line} for line in (folder / "one.txt").read_text().splitlines()]
        first = folder / "one.txt"
        values["data"]["documents"] = "line"
    table = _parquet(folder / "all.parquet", rows)
    jsonl = _jsonl(folder / "all.jsonl", rows)
    for path in (first, _gzip(first), _zstd(first), jsonl, _zstd(jsonl), table):
        yield path.name, {**values, "data": {**values["data"], "train": [str(path)]}}
    if task == "translation":
        yield "prefix", {**values, "data": {**values["data"], "train": [str(folder / "train")]}}


@pytest.mark.parametrize("task", SETTINGS)
def test_every_format_of_the_same_text_gives_the_same_shards(task: str, tmp_path: Path) -> None:
    found = {}
    for name, values in _formats(task, tmp_path):
        prepared(values, tmp_path / f"shards-{name}")
        found[name] = shards_in(tmp_path / f"shards-{name}")
    assert len(found) >= 6
    expected = next(iter(found.values()))
    assert len(expected) > 1
    assert [name for name, shards in found.items() if shards != expected] == []


def test_the_table_of_offsets_finds_each_sample(tmp_path: Path) -> None:
    values = settings("translation", tmp_path)
    config = prepared(values, tmp_path / "shards")
    assert isinstance(config.data, DataConfig)
    tokenizers = TokenizerPair.load(tmp_path / "shards" / "tokenizer.json")
    corpus = prepare(config.data, config.data.train, tokenizers)
    index = ShardIndex.read(tmp_path / "shards")
    numbers = np.random.default_rng(0).permutation(index.samples)
    (source, target), present = ShardSet(tmp_path / "shards", index).columns(numbers)
    assert present.all()
    for place, number in enumerate(numbers.tolist()):
        assert source[place].tolist() == corpus.source[number].tolist()
        assert target[place].tolist() == corpus.target[number].tolist()


def test_pages_of_shards_do_not_stay_in_memory(tmp_path: Path) -> None:
    prepared(settings("translation", tmp_path), tmp_path / "shards")
    index = ShardIndex.read(tmp_path / "shards")
    shards = ShardSet(tmp_path / "shards", index)
    columns, _ = shards.columns(np.arange(index.samples))
    lines, mapped, resident = Path("/proc/self/smaps").read_text().splitlines(), 0, 0
    for number, line in enumerate(lines):
        if line.endswith(".shard"):
            mapped += 1
            resident += next(int(field.split()[1]) for field in lines[number:] if field.startswith("Rss:"))
    assert (mapped, resident) == (len(index.shards), 0)
    assert len(columns[0]) == index.samples


def _message(call: Callable[[], Any]) -> str:
    with pytest.raises((DataError, ConfigError)) as error:
        call()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_refusals_are_one_line_with_the_way_out(tmp_path: Path) -> None:
    values = settings("translation", tmp_path)
    shards = tmp_path / "shards"
    config = prepared(values, shards)
    assert "holds shards already; name another folder" in _message(lambda: prepared(values, shards))
    message = _message(lambda: batches_of(config_of(values, shards=str(shards), max_length=99)))
    assert "was prepared with data.max_length=256, and the configuration has 99" in message
    other = {**values, "text": {**values["text"], "vocab_size": 100}}
    message = _message(lambda: batches_of(config_of(other, shards=str(shards))))
    assert "was prepared with text.vocab_size=120, and the configuration has 100" in message
    (tmp_path / "documents").mkdir()
    masked = settings("masked", tmp_path / "documents")
    message = _message(lambda: batches_of(config_of(masked, shards=str(shards))))
    assert "holds samples of task=translation, not of masked" in message
    message = _message(lambda: batches_of(config_of(values, shards=str(tmp_path / "none"))))
    assert "run glassformer prepare CONFIG --output" in message
    message = _message(lambda: config_of(values, shards=str(shards), alignments=["a", "b"]))
    assert "shards hold no alignments" in message
    (shards / "tokenizer.json").write_bytes(_other_tokenizer(values, tmp_path))
    assert "was prepared with another tokenizer" in _message(lambda: batches_of(config))


def _other_tokenizer(values: dict[str, Any], folder: Path) -> bytes:
    prepared({**values, "text": {**values["text"], "vocab_size": 110}}, folder / "other")
    return (folder / "other" / "tokenizer.json").read_bytes()


def test_an_unfinished_preparation_of_other_text_is_refused(tmp_path: Path) -> None:
    values = settings("translation", tmp_path)
    running = prepare_shards(config_of(values), tmp_path / "shards", 1, 150)
    next(running)
    running.close()
    assert not (tmp_path / "shards" / "index.json").exists()
    assert "run glassformer prepare" in _message(lambda: batches_of(config_of(values, shards=str(tmp_path / "shards"))))
    with (tmp_path / "more.tsv").open("a") as file:
        file.write("ba\tbe\n")
    assert "holds an unfinished preparation of other files" in _message(
        lambda: prepared(values, tmp_path / "shards", 150)
    )


def test_an_unfinished_preparation_with_another_start_is_refused(tmp_path: Path) -> None:
    values = settings("masked", tmp_path)
    runs = {"learned": ""}
    for size in (100, 110):
        run = {**values, "text": {"vocab_size": size}, "train": {**values["train"], "max_steps": 1}}
        list(events(config_of(run), tmp_path / f"run-{size}"))
        runs[str(size)] = str(tmp_path / f"run-{size}")
    for begun, continued in (("100", "110"), ("100", "learned"), ("learned", "100"), ("100", "100")):
        folder = tmp_path / f"{begun}-{continued}"
        first, second = ({**values, "train": {**values["train"], "start_from": runs[x]}} for x in (begun, continued))
        running = prepare_shards(config_of(first), folder, 1, 150)
        next(running)
        running.close()
        if begun == continued:
            prepared(second, folder, 150)
        else:
            assert "an unfinished preparation of other files, settings, train.start_from" in _message(
                partial(prepared, second, folder, 150)
            )


def test_a_second_preparation_of_a_folder_is_refused_while_the_first_runs(tmp_path: Path) -> None:
    values = settings("masked", tmp_path)
    running = prepare_shards(config_of(values), tmp_path / "shards", 1, 400)
    next(running)
    assert "another process prepares shards in it" in _message(lambda: prepared(values, tmp_path / "shards"))
    for _ in running:
        pass
    assert (tmp_path / "shards" / "index.json").exists()


def test_the_lock_is_held_before_the_tokenizer_is_learned_and_leaves_no_file(tmp_path: Path) -> None:
    values, folder = settings("masked", tmp_path), tmp_path / "shards"
    folder.mkdir()
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert "another process prepares shards in it" in _message(lambda: prepared(values, folder))
    assert [path.name for path in folder.iterdir()] == [".lock"]
    os.close(descriptor)
    prepared(values, folder)
    assert not (folder / ".lock").exists()


def test_a_file_system_without_locks_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", without_locks)
    prepared(settings("masked", tmp_path), tmp_path / "shards")
    assert (tmp_path / "shards" / "index.json").is_file()


def test_the_file_that_failed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values, encode = settings("masked", tmp_path), MaskedSamples.encode

    def vanishing(self: MaskedSamples, *arguments: Any) -> Encoded:
        (tmp_path / "two.jsonl").unlink()
        return encode(self, *arguments)

    monkeypatch.setattr(MaskedSamples, "encode", vanishing)
    message = _message(lambda: prepared(values, tmp_path / "shards"))
    assert str(tmp_path / "two.jsonl") in message and "cannot be written" not in message
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "00000000.shard.unfinished").mkdir()
    monkeypatch.undo()
    message = _message(lambda: prepared(settings("masked", tmp_path), tmp_path / "again"))
    assert message.startswith(f"{tmp_path / 'again' / '00000000.shard.unfinished'}: cannot be written (Is a directory)")


def test_missing_libraries_and_damaged_files_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = dict(_formats("masked", tmp_path))
    for name in ("one.txt.zst", "all.parquet"):
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:-7])
        message = _message(partial(prepared, values[path.name], tmp_path / "shards"))
        assert "not a complete" in message and "again" in message
    for module in ("zstandard", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    for name in ("one.txt.zst", "all.parquet"):
        message = _message(partial(prepared, values[name], tmp_path / "shards"))
        assert "which is not installed; pip install 'glassformer[shards]'" in message


def test_tasks_without_text_have_no_shards(tmp_path: Path) -> None:
    values = {"task": "images", "model": {"kind": "vit", "patch_size": 4}, "data": {"train": ["x.npz"]}}
    assert "task=images reads no text" in _message(lambda: prepared(values, tmp_path / "shards"))
