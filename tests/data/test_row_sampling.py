"""Rows of several sentences: complete, as wide as they must be, and hardly padded."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.data import Batch, Corpus, DataConfig, collate, pair_batches, prepare
from glassformer.data.loader import ResumableLoader
from glassformer.data.sampling import pack_rows
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


def an_epoch(batches: ResumableLoader) -> list[Batch]:
    return [batches.next() for _ in range(len(batches))]


def seen(epoch: list[Batch]) -> np.ndarray:
    return np.concatenate([batch.examples for batch in epoch])


def test_a_row_may_hold_several_sentences(tokenizers: TokenizerPair) -> None:
    batch = collate([[([7, 8], [9]), ([], [4, 5])], [([6], [])]], tokenizers, multiple=4)
    assert batch.source.tolist() == [[7, 8, 2, 2], [6, 2, 0, 0]]
    assert batch.target.tolist() == [[1, 9, 1, 4, 5, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0]]
    assert batch.labels.tolist() == [[9, 2, 4, 5, 2, 0, 0, 0], [2, 0, 0, 0, 0, 0, 0, 0]]
    assert batch.source_sentences.tolist() == [[1, 1, 1, 2], [1, 1, 0, 0]]
    assert batch.target_sentences.tolist() == [[1, 1, 2, 2, 2, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0]]
    assert (len(batch), batch.source_tokens, batch.n_targets, batch.padded_tokens) == (3, 6, 6, 24)


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=80),
    row_tokens=st.sampled_from([8, 16, 64]),
)
def test_rows_hold_every_pair_once_and_are_as_wide_as_their_longest_needs(
    lengths: list[tuple[int, int]], row_tokens: int
) -> None:
    source, target = (np.array(side, np.int32) for side in zip(*lengths, strict=True))
    rows = pack_rows(np.arange(len(lengths)), source, target, row_tokens, np.random.default_rng(1))
    assert sorted(rows.examples.values.tolist()) == list(range(len(lengths)))
    for number in range(len(rows.examples)):
        row = rows.examples[number]
        for side, width in ((source, rows.source[number]), (target, rows.target[number])):
            assert width % row_tokens == 0
            assert side[row].sum() <= width < side[row[0]] + row_tokens
    alone = pack_rows(np.arange(len(lengths)), source, target, 0, np.random.default_rng(1)).examples
    assert len(alone) == len(lengths)


@pytest.mark.parametrize("row_tokens", [8, 64])
def test_a_row_is_filled_with_the_longest_pairs_that_fit_both_sides(row_tokens: int) -> None:
    source, target = np.random.default_rng(1).integers(1, 41, (2, 100)).astype(np.int32)
    rows = pack_rows(np.arange(100), source, target, row_tokens, np.random.default_rng(1))
    longer = np.maximum(source, target)
    left = set(range(100))
    for row, *room in zip(rows.examples, rows.source, rows.target, strict=True):
        assert longer[row[0]] == max(longer[list(left)])
        for n, example in enumerate(row):
            fits = [longer[i] for i in left if longer[i] <= min(room)]
            assert n == 0 or longer[example] == max(fits)
            left.remove(example)
            room = [room[0] - source[example], room[1] - target[example]]
        assert not any(longer[i] <= min(room) for i in left)


@pytest.mark.parametrize("seed", range(5))
def test_of_equally_long_pairs_the_one_that_balances_the_sides_follows(seed: int) -> None:
    shorter, left = np.random.default_rng(seed).permutation(9)[:8].astype(np.int32) + 1, set(range(8))
    source = np.where(np.arange(8) % 2, shorter, 10).astype(np.int32)
    target = np.where(np.arange(8) % 2, 10, shorter).astype(np.int32)
    rows = pack_rows(np.arange(8), source, target, 64, np.random.default_rng(seed))
    for row, *room in zip(rows.examples, rows.source, rows.target, strict=True):
        for n, example in enumerate(row):
            uneven = {i: abs(int(room[0] - source[i]) - int(room[1] - target[i])) for i in left}
            assert n == 0 or uneven[int(example)] == min(uneven.values())
            left.remove(int(example))
            room = [room[0] - source[example], room[1] - target[example]]


def test_packed_batches_are_complete_within_budget_and_hardly_padded(make) -> None:
    batches = make(256, row_tokens=64)
    epoch = an_epoch(batches)
    assert sorted(seen(epoch)) == list(range(341))
    for batch in epoch:
        assert max(batch.source.numel(), batch.target.numel()) <= 256
        assert batch.source.shape[1] % 64 == batch.target.shape[1] % 64 == 0
        assert batch.source_tokens == int((batch.source != 0).sum()) == int((batch.source_sentences != 0).sum())
        assert batch.n_targets == int((batch.labels != 0).sum()) == int((batch.target_sentences != 0).sum())
    real = sum(batch.source_tokens + batch.n_targets for batch in epoch)
    padded = sum(batch.padded_tokens for batch in epoch)
    assert batches.padding_share == pytest.approx(1 - real / padded, abs=1e-12)


@pytest.mark.parametrize("row_tokens", [0, 64])
def test_a_batch_holds_the_tokens_of_its_pairs_from_any_corpus(
    corpora: list[Corpus], make, tokenizers: TokenizerPair, row_tokens: int
) -> None:
    pairs = [corpus.pair(i) for corpus in corpora for i in range(len(corpus))]
    for batch in an_epoch(make(1000, row_tokens=row_tokens, weights=[1.5, 2.0])):
        chosen = [pairs[example] for example in batch.examples]
        ends = batch.target_sentences.amax(1).cumsum(0).tolist()
        rows = [chosen[start:stop] for start, stop in zip([0, *ends], ends, strict=False)]
        assert batch.pairs() == [([*source, 2], [*target, 2]) for source, target in chosen]
        assert batch.digest() == collate(rows, tokenizers, batch.examples, row_tokens or 1).digest()


def test_dropout_adds_rows_and_widens_none(bpe: tuple[list[Corpus], TokenizerPair]) -> None:
    corpora, tokenizers = bpe
    plain, dropped = (pair_batches(corpora, tokenizers, 128, 3, bpe_dropout=p, row_tokens=64) for p in (0.0, 0.3))
    one, other = an_epoch(plain), an_epoch(dropped)
    assert [sorted(batch.examples) for batch in one] == [sorted(batch.examples) for batch in other]
    assert sum(len(batch.source) for batch in other) > sum(len(batch.source) for batch in one)
    assert {batch.source.shape[1] for batch in other} == {64}
    decode = tokenizers.source.decode
    texts = [
        {i: decode(source) for batch in epoch for i, (source, _) in zip(batch.examples, batch.pairs(), strict=True)}
        for epoch in (one, other)
    ]
    assert texts[0] == texts[1]


def test_a_sentence_that_dropout_makes_wider_widens_no_row_in_vain(bpe: tuple[list[Corpus], TokenizerPair]) -> None:
    """Planned for rows of 32, some sentences need 64 then: all rows of their batch are that wide, and as full."""
    corpora, tokenizers = bpe
    epoch = an_epoch(pair_batches(corpora, tokenizers, 256, 3, bpe_dropout=0.3, row_tokens=32))
    wide = [batch for batch in epoch if batch.source.shape[1] == 64]
    assert wide
    for batch in wide:
        real = max(batch.source_tokens, batch.n_targets)
        assert batch.source.numel() < 1.5 * real + 64
