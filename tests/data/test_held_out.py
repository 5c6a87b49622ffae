"""Validation on a held-out share of the training examples."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data import DataConfig, prepare, prepare_labeled, prepare_tagged, read_texts
from glassformer.data.config import LabeledConfig, TaggedConfig
from glassformer.data.corpus import held_out_pairs
from glassformer.data.held_out import is_held_out
from glassformer.data.text_classification import labeled_texts
from glassformer.data.token_classification import tagged_texts
from glassformer.errors import ConfigError, DataError
from glassformer.text import TextConfig, TokenizerPair, train_tokenizers

SHARE = 0.2
TEXTS = [f"w{one} w{other}" for one in range(20) for other in range(20)]
PAIRS = [(text, f"{text} w{number % 50}") for number, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def vocabulary() -> TokenizerPair:
    config = TextConfig(kind="word", min_frequency=1, extra_special=("[CLS]", "[SEP]", "[MASK]"))
    return train_tokenizers(config, lambda: iter(f"w{n}" for n in range(50)), lambda: iter(()))


@given(st.lists(st.text(), min_size=1, max_size=2), st.floats(0, 1), st.floats(0, 1))
def test_larger_validation_share_contains_the_smaller(texts: list[str], one: float, other: float) -> None:
    smaller, larger = sorted((one, other))
    assert is_held_out(texts, smaller) <= is_held_out(texts, larger)
    assert not is_held_out(texts, 0.0)
    assert is_held_out(texts, 1.0)
    assert is_held_out([f"  {text}\t" for text in texts], one) == is_held_out(texts, one)


def test_validation_share_counts_distinct_texts() -> None:
    for share in (0.01, 0.05, 0.5):
        found = sum(is_held_out([f"text number {number}"], share) for number in range(20_000)) / 20_000
        assert found == pytest.approx(share, rel=0.1)
    borders = [is_held_out([f"{n}b", "c"], 0.5) == is_held_out([f"{n}", "bc"], 0.5) for n in range(40)]
    assert not all(borders)


def test_held_out_choice_is_pinned() -> None:
    """Resumed runs must hold out the same examples, so the hash must not change."""
    held_out = [number for number in range(100) if is_held_out([f"example {number}"], 0.05)]
    assert held_out == [8, 32, 42, 50, 68, 71, 74]


def test_validation_share_divides_pairs(write_pairs, make_config, tokenizers: TokenizerPair) -> None:
    config = make_config(validation_share=SHARE, train=[write_pairs(PAIRS, "a"), write_pairs(PAIRS[:50], "b")])
    corpora = [prepare(config, [path], tokenizers) for path in config.train]
    sources, targets, account = held_out_pairs(config, tokenizers)
    held_out = [pair for pair in [*PAIRS, *PAIRS[:50]] if is_held_out([pair[0]], SHARE)]
    assert list(zip(sources, targets, strict=True)) == held_out
    trained = [
        (
            tokenizers.source.decode(corpus.source[number].tolist()),
            tokenizers.target.decode(corpus.target[number].tolist()),
        )
        for corpus in corpora
        for number in range(len(corpus))
    ]
    assert trained == [pair for pair in [*PAIRS, *PAIRS[:50]] if not is_held_out([pair[0]], SHARE)]
    assert list(read_texts(config, "target")) == [target for _, target in trained]
    (file,) = corpora[0].account.files
    assert (file.read, file.kept + file.held_out) == (400, 400)
    assert f"400 read, {file.kept} kept, {file.held_out} held out for validation" in file.describe()
    assert [one.read for one in account.files] == [one.account.files[0].held_out for one in corpora]
    assert account.source.tokens == 2 * len(sources)
    everything = prepare(make_config(train=config.train), config.train[:1], tokenizers)
    assert everything.account.kept == 400  # a separate cache entry


def test_validation_share_keeps_equal_sources_together(write_pairs, make_config, tokenizers: TokenizerPair) -> None:
    pairs = [(source, f"w{number}") for source, _ in PAIRS for number in range(3)]
    random.Random(0).shuffle(pairs)
    config = make_config(validation_share=SHARE, train=[write_pairs(pairs)])
    corpus = prepare(config, config.train, tokenizers)
    sources, _, _ = held_out_pairs(config, tokenizers)
    assert len(sources) == 3 * len(set(sources))
    trained = {tokenizers.source.decode(corpus.source[number].tolist()) for number in range(len(corpus))}
    assert not trained & set(sources)


def test_held_out_pairs_are_filtered_like_training_pairs(
    tmp_path: Path, make_config: Callable[..., DataConfig], tokenizers: TokenizerPair
) -> None:
    rows = [f"{source}\t{target}" for source, target in PAIRS]
    rows += ["no tab", "w1 \t", f"w7 w8\t{'w1 ' * 30}", rows[0], rows[1], rows[2]]
    (tmp_path / "x.tsv").write_text("\n".join(rows), encoding="utf-8")
    filters = {"max_length": 20, "drop_duplicates": True}
    config = make_config("x.tsv", validation_share=0.5, **filters)
    corpus, (_, _, account) = prepare(config, config.train, tokenizers), held_out_pairs(config, tokenizers)
    whole = prepare(make_config("x.tsv", **filters), config.train, tokenizers).account
    trained, (held_out,) = corpus.account, account.files
    assert trained.files[0].held_out == held_out.read
    assert trained.read == whole.read
    assert trained.kept + account.kept == whole.kept
    both = {reason: count + account.dropped[reason] for reason, count in trained.dropped.items()}
    assert both == whole.dropped
    assert sum(whole.dropped.values()) == 6


def test_validation_share_divides_labeled_examples(tmp_path: Path, vocabulary: TokenizerPair) -> None:
    """A text that occurs twice, with two labels, stays on one side."""
    rows = [(text, str(number % 3)) for number, text in enumerate(TEXTS)] + [(text, "3") for text in TEXTS[:100]]
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps({"text": a, "label": b}) + "\n" for a, b in rows), encoding="utf-8")
    config = LabeledConfig(train=[str(path)], validation_share=SHARE)
    train = prepare_labeled(config, config.train, vocabulary.source, part="train")
    other = prepare_labeled(config, config.train, vocabulary.source, train.labels, "held_out")
    texts = [
        [vocabulary.source.decode(parts[0].tolist()) for parts in examples.sequences] for examples in (train, other)
    ]
    assert texts[1] == [text for text, _ in rows if is_held_out([text], SHARE)]
    assert not set(texts[0]) & set(texts[1])
    assert len(train) + len(other) == len(rows)
    assert list(labeled_texts(config)) == texts[0]
    assert train.account.files[0].held_out == other.account.read == len(other)
    assert train.fingerprint != prepare_labeled(config, config.train, vocabulary.source).fingerprint


def test_validation_share_divides_tagged_sentences(tmp_path: Path, vocabulary: TokenizerPair) -> None:
    sentences = ["".join(f"{word} {'AB'[len(word) % 2]}\n" for word in text.split()) for text in TEXTS * 2]
    path = tmp_path / "x.conll"
    path.write_text("\n".join(sentences), encoding="utf-8")
    config = TaggedConfig(train=[str(path)], validation_share=SHARE)
    train = prepare_tagged(config, config.train, vocabulary.source, part="train")
    other = prepare_tagged(config, config.train, vocabulary.source, train.tags, "held_out")
    texts = [[vocabulary.source.decode(words.values.tolist()) for words in one.sentences] for one in (train, other)]
    assert texts[1] == [text for text in TEXTS * 2 if is_held_out(text.split(), SHARE)]
    assert not set(texts[0]) & set(texts[1])
    assert len(train) + len(other) == 800
    assert list(tagged_texts(config)) == texts[0]


def test_invalid_validation_shares_are_refused(
    tmp_path: Path, write_pairs, make_config, tokenizers: TokenizerPair, vocabulary: TokenizerPair
) -> None:
    for make in (DataConfig.parse, LabeledConfig.parse, TaggedConfig.parse):
        with pytest.raises(ConfigError, match="validation and validation_share are both set; remove one of them"):
            make({"train": ["x"], "validation": ["y"], "validation_share": 0.1})
        with pytest.raises(ConfigError, match=r"validation_share=1\.0"):
            make({"train": ["x"], "validation_share": 1.0})
    config = make_config(validation_share=1e-6, train=[write_pairs(PAIRS)])
    fault = "data.validation_share=1e-06 holds out no example; raise it, or set data.validation"
    with pytest.raises(DataError) as caught:
        held_out_pairs(config, tokenizers)
    assert str(caught.value) == f"{config.train[0]}: {fault}"
    held_out = next(text for text in TEXTS if is_held_out([text], SHARE))
    kept = [text for text in TEXTS if not is_held_out([text], SHARE)][:4]
    rows = ["text\tlabel", *(f"{text}\t{number % 2}" for number, text in enumerate(kept)), f"{held_out}\trare"]
    (tmp_path / "x.tsv").write_text("\n".join(rows), encoding="utf-8")
    labeled = LabeledConfig(train=[str(tmp_path / "x.tsv")], validation_share=SHARE)
    with pytest.raises(DataError, match=r"line 6: label 'rare' occurs only among the examples that data\.validation_s"):
        prepare_labeled(labeled, labeled.train, vocabulary.source, ("0", "1"), "held_out")
