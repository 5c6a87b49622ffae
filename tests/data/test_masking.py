"""The shares of the paper, never a special token, one prediction at least, drawn from (seed, epoch, position)."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from glassformer.data.config import MaskedConfig
from glassformer.data.loader import ResumableLoader
from glassformer.data.masking import MaskedBatch, Masking, masked_batches
from glassformer.data.token_stream import training_streams
from glassformer.errors import ConfigError, DataError
from glassformer.text import TextConfig, Tokenizer, train_tokenizers

WORDS = " ".join(f"w{i}" for i in range(50))
EXTRA = ("[CLS]", "[SEP]", "[MASK]")
CLS, SEP, MASK, UNKNOWN = 4, 5, 6, 3


def learned(*extra: str) -> Tokenizer:
    config = TextConfig(kind="word", min_frequency=1, extra_special=extra)
    return train_tokenizers(config, lambda: iter([WORDS]), lambda: iter(())).source


@pytest.fixture(scope="module")
def vocabulary() -> Tokenizer:
    return learned(*EXTRA)


@pytest.fixture
def make(tmp_path: Path, vocabulary: Tokenizer) -> Callable[..., ResumableLoader]:
    def make(lines: list[str], seed: int = 1, **values: object) -> ResumableLoader:
        (tmp_path / "x.txt").write_text("\n".join(lines))
        defaults = {"train": [str(tmp_path / "x.txt")], "cache": str(tmp_path / "cache"), "documents": "line"}
        config = MaskedConfig.parse({**defaults, **values})
        return masked_batches(training_streams(config, vocabulary), vocabulary, config, seed)

    return make


def lines(n: int, longest: int = 40) -> list[str]:
    generator = np.random.default_rng(n)
    return [
        " ".join(f"w{i}" for i in generator.integers(0, 50, length)) for length in generator.integers(1, longest, n)
    ]


def same(one: MaskedBatch, other: MaskedBatch) -> bool:
    names = ("tokens", "mask", "labels", "predicted", "segments")
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in names)


def test_an_epoch_holds_every_sequence_once_framed_and_whole(make, vocabulary: Tokenizer) -> None:
    texts = lines(200)
    sequences = make(texts, batch_tokens=300)
    found = []
    for batch in sequences.whole_epoch():
        assert batch.tokens.numel() <= 300
        assert not batch.segments.any()
        assert batch.source_tokens == int(batch.mask.sum())
        assert batch.n_targets == int(batch.predicted.sum())
        for tokens, mask in zip(batch.labels, batch.mask, strict=True):
            *row, last = tokens[mask].tolist()
            assert row[0] == CLS
            assert last == SEP
            assert not tokens[~mask].any()
            assert mask.sum() == len(row) + 1
            found.append(vocabulary.decode(row[1:]))
    assert sorted(found) == sorted(texts)


@pytest.mark.parametrize("max_length", [3, 7, 10, 128])
def test_long_documents_are_cut_into_equal_parts(make, max_length: int) -> None:
    sequences = make([WORDS], max_length=max_length, batch_tokens=200)
    rows = [row[mask].tolist()[1:-1] for b in sequences.whole_epoch() for row, mask in zip(b.labels, b.mask)]
    sizes = [len(row) for row in rows]
    assert len(rows) == math.ceil(50 / (max_length - 2))
    assert max(sizes) - min(sizes) <= 1
    assert sorted(id for row in rows for id in row) == sorted(set(range(57)) - set(range(7)))


def test_shares_are_those_of_the_paper(make) -> None:
    """Within four standard deviations of 15 %, and of 80, 10 and 10 % of it."""
    total = predicted = masked = changed = 0
    replaced = list[int]()
    for batch in make([WORDS] * 400, batch_tokens=4000).whole_epoch():
        hidden, expected = batch.tokens[batch.predicted], batch.labels[batch.predicted]
        total += batch.source_tokens - 2 * len(batch)
        predicted += batch.n_targets
        masked += int((hidden == MASK).sum())
        other = hidden[(hidden != MASK) & (hidden != expected)]
        changed += len(other)
        replaced += other.tolist()
        assert torch.equal(batch.tokens[~batch.predicted], batch.labels[~batch.predicted])
        assert set(batch.predicted.sum(1).tolist()) == {7, 8}  # 15 % of 50, rounded by chance
    assert predicted / total == pytest.approx(0.15, abs=4 * 0.5 / 50 / math.sqrt(400))
    for count, share in ((masked, 0.8), (changed, 0.1 * 49 / 50)):  # the token drawn may be the one that was there
        assert count / predicted == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / predicted))
    assert set(replaced) == set(range(7, 57))  # every ordinary token, and no special one


@pytest.mark.parametrize("share", [0.01, 0.15, 1.0])
def test_special_tokens_are_never_hidden_and_every_sequence_predicts(make, share: float) -> None:
    for batch in make([*lines(100), "w1", "w2 ? ?", "? w3"], masked_share=share).whole_epoch():
        hidden = batch.labels[batch.predicted]
        assert (hidden > MASK).all()
        assert (batch.predicted.sum(1) >= 1).all()
        assert not (batch.predicted & ~batch.mask).any()
        if share == 1:
            assert (batch.predicted == (batch.labels > MASK)).all()


def test_an_unknown_symbol_is_predicted_where_there_is_nothing_else(make) -> None:
    (batch,) = make(["? ?"]).whole_epoch()
    assert batch.labels[batch.predicted].tolist() == [UNKNOWN]


@pytest.mark.parametrize(("hidden", "random"), [(1.0, 0.0), (0.0, 1.0), (0.0, 0.0)])
def test_each_replacement_alone(vocabulary: Tokenizer, hidden: float, random: float) -> None:
    config = MaskedConfig(train=["x"], masked_share=1, mask_token_share=hidden, random_token_share=random)
    expected = np.tile(np.arange(7, 57), (20, 1))
    tokens, predicted = Masking.of(vocabulary, config).hide(expected, np.random.default_rng(0))
    assert predicted.all()
    assert (tokens == MASK).all() if hidden else (tokens > MASK).all()
    assert (tokens != expected).mean() == pytest.approx(hidden + random, abs=0.05)


def test_masks_differ_between_epochs_and_seeds_and_follow_the_state(make) -> None:
    sequences, again, other = (make(lines(60), seed=seed, batch_tokens=200) for seed in (1, 1, 2))
    first = [sequences.next() for _ in range(len(sequences))]
    assert all(same(a, b) for a, b in zip(first, sequences.whole_epoch(0), strict=True))
    assert not any(same(a, b) for a, b in zip(first, sequences.whole_epoch(1)))
    assert not any(same(a, b) for a, b in zip(first, other.whole_epoch(0)))
    sequences.next()
    again.restore(sequences.state())
    assert sequences.state() == {"epoch": 1, "position": 1}
    assert all(same(sequences.next(), again.next()) for _ in range(12))


def test_one_document_is_masked_otherwise_each_epoch(make) -> None:
    sequences = make([WORDS])
    chosen = {tuple(sequences.next().predicted.flatten().tolist()) for _ in range(20)}
    assert len(chosen) == 20


def test_the_largest_batch_and_the_padding_are_those_of_the_epoch(make) -> None:
    sequences = make(lines(100), batch_tokens=200)
    epoch = list(sequences.whole_epoch())
    assert sequences.largest().tokens.numel() == max(batch.tokens.numel() for batch in epoch)
    real, padded = sum(batch.source_tokens for batch in epoch), sum(batch.tokens.numel() for batch in epoch)
    assert sequences.padding_share == pytest.approx(1 - real / padded)
    shape = sequences.largest().tokens.shape
    assert sequences.largest().describe() == f"{shape[0]} sequences of {shape[1]} tokens"
    assert same(sequences.largest().to("cpu"), sequences.largest())


def test_a_weight_repeats_its_path(make, vocabulary: Tokenizer) -> None:
    ids = torch.cat([batch.labels[:, 1] for batch in make(["w1", "w2"], weights=[3]).whole_epoch()]).tolist()
    assert sorted(ids) == sorted(vocabulary.encode("w1 w2") * 3)


def test_the_fingerprint_is_of_all_that_decides_the_batches(make) -> None:
    variants = [
        {},
        {"max_length": 20},
        {"batch_tokens": 300},
        {"bucket_noise": 0.5},
        {"masked_share": 0.2},
        {"mask_token_share": 0.7},
        {"random_token_share": 0.2},
        {"weights": [2]},
    ]
    assert len({make(lines(9), **values).fingerprint for values in variants}) == len(variants)


def test_a_vocabulary_without_the_special_tokens_is_refused(make, tmp_path: Path) -> None:
    make(["w1"])
    config = MaskedConfig(train=[str(tmp_path / "x.txt")], cache=str(tmp_path / "cache"))
    for extra in ((), EXTRA[:2]):
        tokenizer = learned(*extra)
        with pytest.raises(ConfigError, match=r"the vocabulary has no \[\w+\]; set text.extra_special=\["):
            masked_batches(training_streams(config, tokenizer), tokenizer, config, 1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mask_token_share": 0.8, "random_token_share": 0.3}, "1.1 together, more than 1; lower one"),
        ({"max_length": 2}, "max_length=2"),
        ({"masked_share": 0.0}, "masked_share=0.0"),
        ({"max_length": 100, "batch_tokens": 99}, "max_length=100 does not fit batch_tokens=99; raise it to 100"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MaskedConfig.parse({"train": ["x"], **values})


def test_a_negative_seed_is_refused(make) -> None:
    with pytest.raises(DataError, match="seed=-1 is negative"):
        make(["w1"], seed=-1)
