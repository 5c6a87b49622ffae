"""Batches from shards against those from files, resumed anywhere, and divided among processes."""

from pathlib import Path

import numpy as np
import pytest
import torch

from glassformer.data.loader import Tensors
from glassformer.errors import DataError
from glassformer.train.tasks import make_task
from shard_tasks import SETTINGS, WORDS, batches_of, config_of, epoch, multiset, prepared, samples_of, settings

TASKS = list(SETTINGS)


@pytest.mark.parametrize("task", TASKS)
def test_an_epoch_from_shards_has_the_samples_of_the_files(task: str, tmp_path: Path) -> None:
    values = settings(task, tmp_path)
    files, shards = batches_of(config_of(values)), batches_of(prepared(values, tmp_path / "shards"))
    for _ in range(2):  # the windows of a language model move from epoch to epoch
        expected = multiset(epoch(files))
        assert multiset(epoch(shards)) == expected
        assert len(expected) > 100
    assert len(shards.shards.index.shards) > 4


@pytest.mark.parametrize("task", TASKS)
def test_any_batch_resumes_with_the_batches_that_followed(task: str, tmp_path: Path) -> None:
    config = prepared(settings(task, tmp_path), tmp_path / "shards")
    loader, states, batches = batches_of(config), [], []
    for _ in range(70):
        states.append(loader.state())
        batches.append(loader.next())
    assert loader.epoch >= 1
    for start in (0, 1, 5, 23, 48, 69):
        resumed = batches_of(config)
        resumed.restore(states[start])
        for batch in batches[start : start + 8]:
            assert_equal(resumed.next(), batch)


def test_a_weighted_path_without_text_is_named(tmp_path: Path) -> None:
    values = settings("language", tmp_path)
    (tmp_path / "empty.txt").write_text("")
    values["data"] |= {"train": [*values["data"]["train"], str(tmp_path / "empty.txt")], "weights": [1.0, 1.0, 2.0]}
    config = prepared(values, tmp_path / "shards")
    with pytest.raises(DataError, match=r"empty.txt: has no text to predict; prepare .* without this path and its wei"):
        batches_of(config)


def test_a_position_behind_the_epoch_is_refused(tmp_path: Path) -> None:
    loader = batches_of(prepared(settings("masked", tmp_path), tmp_path / "shards"))
    with pytest.raises(DataError, match=r"^cannot continue at sample 9,999 of epoch 3, which has \d+; use the shards,"):
        loader.restore({"epoch": 3, "position": 9999})


@pytest.mark.parametrize("task", TASKS)
def test_epochs_and_seeds_have_other_orders(task: str, tmp_path: Path) -> None:
    values = settings(task, tmp_path)
    config = prepared(values, tmp_path / "shards")
    loader = batches_of(config)
    first = [samples_of(batch) for batch in epoch(loader)]
    second = [samples_of(batch) for batch in epoch(loader)]
    other = batches_of(config.model_copy(update={"train": config.train.model_copy(update={"seed": 4})}))
    assert first != second
    assert first != [samples_of(batch) for batch in epoch(other)]


@pytest.mark.parametrize("task", TASKS)
def test_processes_divide_the_same_batches(task: str, tmp_path: Path) -> None:
    config = prepared(settings(task, tmp_path), tmp_path / "shards")
    whole = [samples_of(batch) for batch in epoch(batches_of(config))]
    for world in (1, 2, 4):
        loaders = [batches_of(config) for _ in range(world)]
        for expected in whole:
            shares = []
            for rank, loader in enumerate(loaders):
                batch = loader.next()
                rows = range(rank, batch.n_rows, world)
                shares.append(samples_of(batch.select(rows)) if len(rows) else [])
            assert sorted(sample for share in shares for sample in share) == sorted(expected)
    assert len(whole) > 4


def test_a_weight_repeats_the_samples_of_its_path(tmp_path: Path) -> None:
    values = settings("translation", tmp_path)
    config = prepared(values, tmp_path / "shards")
    weighted = config_of(values, shards=config.data.shards, weights=[2, 1.5])
    counts = np.bincount(np.concatenate([batch.examples for batch in epoch(batches_of(weighted))]))
    assert set(counts[:298]) == {2}
    assert set(counts[298:]) == {1, 2}
    assert counts[298:].sum() in (75, 74, 73, 72)


def test_dropout_of_merges_depends_on_the_pair_and_the_epoch(tmp_path: Path) -> None:
    values = settings("translation", tmp_path)
    config = prepared(values, tmp_path / "shards")
    values["text"]["bpe_dropout"] = 0.3
    loader = batches_of(config_of(values, shards=config.data.shards))
    tokenizers = make_task(config).tokenizers
    decode = tokenizers.source.decode, tokenizers.target.decode
    plain = {tuple(samples): None for batch in epoch(batches_of(config)) for samples in samples_of(batch)}
    drawn = [sample for batch in epoch(loader) for sample in samples_of(batch)]
    assert not set(drawn) <= set(plain)
    texts = sorted(tuple(d(ids[:-1]) for d, ids in zip(decode, sample, strict=True)) for sample in drawn)
    assert texts == sorted(tuple(d(ids[:-1]) for d, ids in zip(decode, sample, strict=True)) for sample in plain)


def test_equal_pairs_of_two_windows_are_segmented_independently(tmp_path: Path) -> None:
    values = settings("translation", tmp_path)
    line = " ".join(WORDS[::9])
    for language in ("en", "de"):
        (tmp_path / f"same.{language}").write_text(f"{line}\n" * 128)
    values["data"]["train"] = [str(tmp_path / "same")]
    values["text"] |= {"vocab_size": 60, "bpe_dropout": 0.5}
    loader = batches_of(prepared(values, tmp_path / "shards"))
    drawn = [sample for batch in epoch(loader) for sample in samples_of(batch)]
    assert len(drawn) == 128
    assert sorted(drawn[:64]) != sorted(drawn[64:])


def test_the_order_within_a_window_is_by_length(tmp_path: Path) -> None:
    config = prepared(settings("masked", tmp_path), tmp_path / "shards")
    spans = [batch.mask.sum(1) for batch in epoch(batches_of(config))]
    assert np.mean([int(span.max() - span.min()) for span in spans]) < 4
    assert all(len(span) * int(span.max()) <= config.data.batch_tokens for span in spans)


def assert_equal(one: Tensors, other: Tensors) -> None:
    for name, value in vars(one).items():
        expected = getattr(other, name)
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, expected), name
        elif isinstance(value, np.ndarray):
            assert np.array_equal(value, expected), name
        else:
            assert value == expected, name
