"""Windows cover a stream, are cut anew each epoch, and are decided by (seed, epoch, position)."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from glassformer.data.config import StreamConfig
from glassformer.data.loader import ResumableLoader
from glassformer.data.read_report import FileReadReport, ReadReport
from glassformer.data.token_stream import Stream
from glassformer.data.windows import WindowBatch, window_batches
from glassformer.errors import DataError
from glassformer.text import TokenizerPair


def counted(first: int, n: int, name: str = "x.txt") -> Stream:
    """Every id occurs once, so that a window says where it was cut."""
    ids = np.arange(first, first + n)
    return Stream(ids, np.array([0, n + 1]), n, n, ReadReport([FileReadReport(name)]), f"{first} {n}")


@pytest.fixture
def make(tokenizers: TokenizerPair) -> Callable[..., ResumableLoader]:
    def make(*streams: Stream, seed: int = 1, **values: object) -> ResumableLoader:
        streams = streams or (counted(1000, 1234),)
        config = StreamConfig.parse({"train": [str(i) for i in range(len(streams))], "context": 10, **values})
        return window_batches(streams, tokenizers.source, config, seed)

    return make


def an_epoch(windows: ResumableLoader) -> list[WindowBatch]:
    return [windows.next() for _ in range(len(windows))]


def same(one: WindowBatch, other: WindowBatch) -> bool:
    return torch.equal(one.tokens, other.tokens) and torch.equal(one.labels, other.labels)


def expected(epoch: list[WindowBatch]) -> list[int]:
    return sorted(torch.cat([batch.labels for batch in epoch]).flatten().tolist())


@pytest.mark.parametrize("batch_size", [1, 7, 64, 1000])
def test_an_epoch_predicts_every_token_once_but_for_the_ends(make, batch_size: int) -> None:
    windows = make(batch_size=batch_size)
    for _ in range(3):
        epoch = an_epoch(windows)
        seen = expected(epoch)
        assert seen == list(range(seen[0], seen[-1] + 1))
        assert seen[0] <= 1010
        assert seen[-1] > 2233 - 10
        for batch in epoch:
            assert torch.equal(batch.tokens + 1, batch.labels)
            assert batch.tokens.shape[1] == 10
            assert (batch.tokens[:, 1:] == batch.labels[:, :-1]).all()
            assert batch.source_tokens == batch.n_targets == batch.tokens.numel()
            assert batch.documents is None
        sizes = [len(batch) for batch in epoch]
        assert max(sizes) <= batch_size
        assert max(sizes) - min(sizes) <= 1
        assert len(epoch) == -(-sum(sizes) // batch_size)


def test_epochs_cut_and_order_anew_and_every_offset_occurs(make) -> None:
    windows = make(batch_size=64)
    offsets = set()
    for _ in range(80):
        epoch = an_epoch(windows)
        offsets.add(expected(epoch)[0] - 1001)
        assert not (torch.cat([batch.tokens[:, 0] for batch in epoch]).diff() > 0).all()
    assert offsets == set(range(10))
    assert not same(make(seed=1).next(), make(seed=2).next())


def test_a_restored_stream_goes_on_with_the_same_batches(make) -> None:
    windows = make(batch_size=30)
    for _ in range(len(windows) + 2):
        windows.next()
    state = windows.state()
    assert state == {"epoch": 1, "position": 2}
    other = make(batch_size=30)
    other.restore(state)
    assert all(same(windows.next(), other.next()) for _ in range(9))
    assert windows.state() == other.state()
    with pytest.raises(DataError, match="batch 99 of epoch 0 is asked for, which has"):
        other.restore({"epoch": 0, "position": 99})


def test_a_validation_epoch_leaves_training_where_it_is(make) -> None:
    windows = make(batch_size=30)
    first = an_epoch(windows)
    state = windows.state()
    assert all(same(*pair) for pair in zip(first, windows.whole_epoch(0), strict=True))
    assert windows.state() == state


def test_a_window_stays_within_its_stream_and_weights_repeat_it(make) -> None:
    streams = [counted(1000, 305), counted(5000, 101)]
    epoch = an_epoch(make(*streams, weights=[1, 3], batch_size=8))
    assert all(torch.equal(batch.tokens + 1, batch.labels) for batch in epoch)
    ids, times = np.unique(expected(epoch), return_counts=True)
    assert set(times[ids < 5000]) == {1}
    assert set(times[ids >= 5000]) == {3}


def test_documents_are_numbered_and_the_end_token_opens_the_next(make, tokenizers: TokenizerPair) -> None:
    end = tokenizers.source.end_id
    assert end == 2
    ids = np.array([2, 7, 8, 2, 9, 2, 2, 5, 6, 7, 4])
    stream = Stream(ids, np.array([0, 12]), 1, 1, ReadReport([FileReadReport("x.txt")]), "")
    batch = make(stream, within_documents=True).next()
    assert batch.documents is not None
    assert batch.documents.tolist() == [[1, 1, 1, 2, 2, 3, 4, 4, 4, 4]]
    assert batch.to("cpu").documents is not None


def test_the_shortest_stream_is_one_window_and_the_token_after_it(make) -> None:
    assert make(counted(1000, 11)).next().tokens.tolist() == [list(range(1000, 1010))]
    with pytest.raises(DataError, match=r"small\.txt: 10 tokens are less than one window of data\.context=10 and"):
        make(counted(1000, 11), counted(0, 10, "small.txt"))


def test_the_fingerprint_is_of_all_that_decides_the_batches(make) -> None:
    variants = [
        make(),
        make(counted(0, 1234)),
        make(context=9),
        make(batch_size=5),
        make(weights=[2]),
        make(within_documents=True),
    ]
    assert len({windows.fingerprint for windows in variants}) == len(variants)
    assert make().fingerprint == make().fingerprint


def test_batch_tokens_are_an_upper_limit_and_the_largest_batch_says_its_shape(make) -> None:
    windows = make(batch_tokens=59)
    assert windows.largest().describe() == "5 windows of 10 tokens"
    assert max(batch.source_tokens for batch in an_epoch(windows)) == 50
    assert windows.padding_share == 0


def test_ids_may_be_mapped_from_a_file(tmp_path: Path, make) -> None:
    np.arange(200, dtype="<u2").tofile(tmp_path / "ids")
    mapped = np.asarray(np.memmap(tmp_path / "ids", "<u2", "r"))
    stream = Stream(mapped, np.array([0, 201]), 1, 1, ReadReport([FileReadReport("x.txt")]), "")
    batch = make(stream).next()
    assert batch.tokens.dtype == torch.int64
    assert torch.equal(batch.tokens + 1, batch.labels)
