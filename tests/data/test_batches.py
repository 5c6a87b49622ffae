"""The stream of batches: complete, within budget, resumable, and decided by its seed."""

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.data import Batch, Corpus, DataConfig, collate, ordered_batches, pair_batches, prepare
from glassformer.data.loader import ResumableLoader
from glassformer.errors import DataError
from glassformer.text import TextConfig, TokenizerPair, train_tokenizers


def words(generator: np.random.Generator, length: int) -> str:
    return " ".join(f"w{number}" for number in generator.integers(0, 50, length))


@pytest.fixture(scope="module")
def corpora(tokenizers: TokenizerPair, tmp_path_factory: pytest.TempPathFactory) -> list[Corpus]:
    """Two corpora of 300 and 41 pairs with 1 to 30 words a side."""
    folder, generator = tmp_path_factory.mktemp("corpora"), np.random.default_rng(5)
    paths = [folder / "large.tsv", folder / "small.tsv"]
    for path, n_pairs in zip(paths, (300, 41), strict=True):
        sizes = generator.integers(1, 31, (n_pairs, 2)).tolist()
        path.write_text("".join(f"{words(generator, a)}\t{words(generator, b)}\n" for a, b in sizes))
    config = DataConfig(train=[str(path) for path in paths], cache=str(folder))
    return [prepare(config, [path], tokenizers) for path in config.train]


@pytest.fixture
def make(corpora: list[Corpus], tokenizers: TokenizerPair) -> Callable[..., ResumableLoader]:
    def batches(batch_tokens: int = 200, seed: int = 1, **options: object) -> ResumableLoader:
        return pair_batches(corpora, tokenizers, batch_tokens, seed, **options)

    return batches


def an_epoch(batches: ResumableLoader) -> list[Batch]:
    return [batches.next() for _ in range(len(batches))]


def same(one: Batch, other: Batch) -> bool:
    return torch.equal(one.source, other.source) and torch.equal(one.target, other.target)


def seen(epoch: list[Batch]) -> np.ndarray:
    return np.concatenate([batch.examples for batch in epoch])


def test_an_epoch_holds_every_pair_once_and_whole(corpora: list[Corpus], make, tokenizers: TokenizerPair) -> None:
    batches = make()
    pairs = [corpus.pair(i) for corpus in corpora for i in range(len(corpus))]
    for _ in range(2):
        epoch = an_epoch(batches)
        assert sorted(seen(epoch)) == list(range(341))
        for batch in epoch:
            for example, source, target in zip(
                batch.examples, batch.source.tolist(), batch.target.tolist(), strict=True
            ):
                a, b = (ids.tolist() for ids in pairs[example])
                assert source == [*a, 2] + [0] * (len(source) - len(a) - 1)
                assert target == [1, *b] + [0] * (len(target) - len(b) - 1)


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.5])
@pytest.mark.parametrize("batch_tokens", [31, 64, 1000, 100_000])
def test_no_batch_is_over_budget_and_none_pads_needlessly(make, batch_tokens: int, noise: float) -> None:
    for batch in an_epoch(make(batch_tokens, bucket_noise=noise)):
        assert max(batch.source.numel(), batch.target.numel()) <= batch_tokens
        assert (batch.source[:, -1] == 2).any()
        assert (batch.labels[:, -1] == 2).any()
        assert batch.source.dtype == batch.target.dtype == torch.int64


def test_token_counts_and_the_share_of_padding_are_those_of_the_tensors(make) -> None:
    batches = make()
    largest, share = batches.largest(), batches.padding_share
    epoch = an_epoch(batches)
    for batch in epoch:
        assert batch.source_tokens == int((batch.source != 0).sum())
        assert batch.n_targets == int((batch.labels != 0).sum())
        assert batch.padded_tokens == batch.source.numel() + batch.target.numel()
    real = sum(batch.source_tokens + batch.n_targets for batch in epoch)
    padded = sum(batch.padded_tokens for batch in epoch)
    assert share == pytest.approx(1 - real / padded, abs=1e-12)
    assert 0 < real < padded
    assert largest.padded_tokens == max(batch.padded_tokens for batch in epoch)
    assert any(same(largest, batch) for batch in epoch)


def test_the_state_is_that_of_the_next_batch(make) -> None:
    batches = make()
    states = [batches.state()]
    for _ in range(length := len(batches)):
        batches.next()
        states.append(batches.state())
    assert states == [*({"epoch": 0, "position": i} for i in range(length)), {"epoch": 1, "position": 0}]


def test_similar_lengths_share_a_batch(corpora: list[Corpus], make, tokenizers: TokenizerPair) -> None:
    """Against batches of pairs as they come, within the same budget."""
    lengths = [(corpus.source_lengths + 1, corpus.target_lengths + 1) for corpus in corpora]
    rows, padded, real = (0, 0, 0), 0, 0
    for source, target in np.concatenate(lengths, axis=1).T.tolist():
        wider = (rows[0] + 1, max(rows[1], source), max(rows[2], target))
        if wider[0] * max(wider[1:]) > 400:
            padded += rows[0] * (rows[1] + rows[2])
            wider = (1, source, target)
        rows, real = wider, real + source + target
    padded += rows[0] * (rows[1] + rows[2])
    assert make(400).padding_share < 0.7 * (1 - real / padded)


def test_the_seed_decides_and_epochs_differ(make) -> None:
    once, again, other = make(), make(), make(seed=2)
    first = an_epoch(once)
    assert all(same(a, b) for a, b in zip(first, an_epoch(again), strict=True))
    second = an_epoch(once)
    together = [{frozenset(batch.examples.tolist()) for batch in epoch} for epoch in (first, second, an_epoch(other))]
    assert together[0] != together[1]
    assert together[0] != together[2]


def test_short_and_long_batches_alternate(make) -> None:
    """Pairs are sorted by target length to be cut into batches, which then come in random order."""
    widths = [batch.target.shape[1] for batch in an_epoch(make(bucket_noise=0.0))]
    assert widths != sorted(widths)


@settings(max_examples=25, deadline=None)
@given(stop=st.integers(0, 130), dropout=st.sampled_from([0.0, 0.3]), weighted=st.booleans())
def test_a_restored_stream_goes_on_as_the_first_would_have(
    bpe: tuple[list[Corpus], TokenizerPair], stop: int, dropout: float, weighted: bool
) -> None:
    def fresh() -> ResumableLoader:
        return pair_batches(corpora, tokenizers, 80, 3, weights=[1.5] if weighted else [], bpe_dropout=dropout)

    corpora, tokenizers = bpe
    stopped, restored = fresh(), fresh()
    for _ in range(stop):
        stopped.next()
    restored.restore(stopped.state())
    assert restored.state() == stopped.state()
    for _ in range(len(stopped) + 2):
        assert same(restored.next(), stopped.next())


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Corpus], TokenizerPair]:
    """A byte-pair vocabulary whose words are cut anew by dropout."""
    folder, generator = tmp_path_factory.mktemp("bpe"), np.random.default_rng(1)
    lines = [" ".join("abcdefgh"[i : i + 3] * 2 for i in generator.integers(0, 6, n % 9 + 1)) for n in range(90)]
    (folder / "p.tsv").write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines))
    config = DataConfig(train=[str(folder / "p.tsv")], cache=str(folder))
    text = TextConfig(vocab_size=90, bpe_dropout=0.3)
    tokenizers = train_tokenizers(text, lambda: iter(lines), lambda: (line[::-1] for line in lines))
    return [prepare(config, config.train, tokenizers)], tokenizers


def test_dropout_cuts_the_same_text_anew_each_epoch(bpe: tuple[list[Corpus], TokenizerPair]) -> None:
    corpora, tokenizers = bpe
    plain, dropped = (pair_batches(corpora, tokenizers, 80, 3, bpe_dropout=p) for p in (0.0, 0.3))
    epochs: list[dict[int, list[int]]] = [{}, {}, {}]
    for batches, number in ((plain, 0), (dropped, 1), (dropped, 2)):
        for batch in an_epoch(batches):
            rows = [[i for i in row if i != tokenizers.source.pad_id] for row in batch.source.tolist()]
            epochs[number] |= dict(zip(batch.examples.tolist(), rows, strict=True))
    decode = tokenizers.source.decode
    texts = [{example: decode(ids) for example, ids in epoch.items()} for epoch in epochs]
    assert texts[0] == texts[1] == texts[2]
    lengths = [sum(len(ids) for ids in epoch.values()) for epoch in epochs]
    assert min(lengths[1:]) > lengths[0]
    assert epochs[1] != epochs[2]


@pytest.mark.parametrize(("weight", "least", "most"), [(2.0, 2, 2), (0.5, 0, 1), (2.25, 2, 3), (0.001, 0, 1)])
def test_weights_say_how_often_an_epoch_sees_a_corpus(make, weight: float, least: int, most: int) -> None:
    batches = make(weights=[weight, 1.0])
    epochs = [seen(an_epoch(batches)) for _ in range(2)]
    for examples in epochs:
        times = np.bincount(examples, minlength=341)
        assert (times[300:] == 1).all()
        assert set(times[:300]) <= {least, most}
        assert abs(times[:300].sum() - 300 * weight) <= 1
    if weight != 2.0:
        parts = [np.bincount(examples, minlength=341)[:300] for examples in epochs]
        assert (parts[0] != parts[1]).any()


def test_fractions_are_met_on_average(make) -> None:
    batches = make(weights=[1.0, 0.3])
    counts = [int((seen(an_epoch(batches)) >= 300).sum()) for _ in range(60)]
    assert set(counts) == {12, 13}
    assert abs(np.mean(counts) - 12.3) < 0.2


def test_the_fingerprint_is_that_of_data_and_weights(corpora: list[Corpus], make, tokenizers: TokenizerPair) -> None:
    same_data = [make(), make(seed=9, batch_tokens=999), make(weights=[1.0, 1.0])]
    assert len({batches.fingerprint for batches in same_data}) == 1
    others = [
        make(weights=[1.0, 2.0]),
        pair_batches(corpora[:1], tokenizers, 99, 1),
        pair_batches(corpora[::-1], tokenizers, 99, 1),
    ]
    assert len({batches.fingerprint for batches in [*others, make()]}) == 4


def test_a_pair_larger_than_a_batch_is_an_error(make, corpora: list[Corpus]) -> None:
    with pytest.raises(
        DataError, match=r"a pair of \d+ source and \d+ target tokens does not fit data\.batch_tokens=30; raise"
    ):
        make(30)
    make(31)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"weights": [1.0]}, "1 values for 2 corpora"), ({"weights": [1.0, 0.0]}, "above 0"), ({"seed": -1}, "negative")],
)
def test_what_makes_no_stream_is_an_error(make, options: dict[str, object], said: str) -> None:
    with pytest.raises(DataError, match=said):
        make(**options)


def test_no_corpus_is_an_error(tokenizers: TokenizerPair) -> None:
    with pytest.raises(DataError, match="no corpus"):
        pair_batches([], tokenizers, 100, 1)


def test_a_state_of_other_data_is_an_error_and_changes_nothing(make) -> None:
    batches, untouched = make(), make()
    for position in (10_000, -1):
        with pytest.raises(DataError, match=f"batch {position} of epoch 3"):
            batches.restore({"epoch": 3, "position": position})
    assert batches.state() == {"epoch": 0, "position": 0}
    assert same(batches.next(), untouched.next())


def test_iteration_does_not_end(make) -> None:
    batches = make()
    stream: Iterator[Batch] = iter(batches)
    length = len(batches)
    assert len(list(islice(stream, 2 * length + 3))) == 2 * length + 3
    assert batches.epoch == 2


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=30), batch_tokens=st.integers(2, 40)
)
def test_ordered_batches_hold_every_pair_once(
    tokenizers: TokenizerPair, lengths: list[tuple[int, int]], batch_tokens: int
) -> None:
    sources, targets = [[5] * a for a, _ in lengths], [[6] * b for _, b in lengths]
    batches = ordered_batches(sources, targets, tokenizers, batch_tokens)
    assert sorted(example for batch in batches for example in batch.examples) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or max(batch.source.numel(), batch.target.numel()) <= batch_tokens
        for example, source, target in zip(batch.examples, batch.source, batch.target, strict=True):
            assert source.tolist()[: lengths[example][0] + 1] == [*sources[example], 2]
            assert target.tolist()[: lengths[example][1] + 1] == [1, *targets[example]]


def test_a_batch_keeps_its_rows_in_order(tokenizers: TokenizerPair) -> None:
    batch = collate([[([7, 8], [])], [(np.array([9], np.uint16), [4])], [([], [5, 6])]], tokenizers)
    assert batch.source.tolist() == [[7, 8, 2], [9, 2, 0], [2, 0, 0]]
    assert batch.target.tolist() == [[1, 0, 0], [1, 4, 0], [1, 5, 6]]
    assert batch.labels.tolist() == [[2, 0, 0], [4, 2, 0], [5, 6, 2]]
    assert batch.source_sentences.tolist() == [[1, 1, 1], [1, 1, 0], [1, 0, 0]]
    assert (len(batch), batch.source_tokens, batch.n_targets, batch.padded_tokens) == (3, 6, 6, 18)
    moved = batch.to("meta")
    assert moved.source.device.type == moved.target.device.type == "meta"
    assert (moved.source_tokens, moved.n_targets) == (6, 6)
