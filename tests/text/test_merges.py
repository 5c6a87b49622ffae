"""Byte-pair encoding by hand against the paper and the compiled library, and BPE-dropout."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.errors import ConfigError
from glassformer.text import TextConfig, Tokenizer, train_tokenizers


def trained(lines: list[str], **choices) -> Tokenizer:
    config = TextConfig.parse({"min_frequency": 1, **choices})
    return train_tokenizers(config, lambda: iter(lines), lambda: iter(())).source


def invented_text(lines: int = 300) -> list[str]:
    draw = random.Random(7)
    words = ["".join(draw.choices("abcdefgh-", k=draw.randint(1, 9))) for _ in range(400)]
    return [" ".join(draw.choices(words, weights=range(1, 401), k=8)) + "." for _ in range(lines)]


TEXT = invented_text()
TOKENIZER = trained(TEXT, vocab_size=300)


def test_the_example_of_the_paper():
    """Sennrich et al. 2016, section 3.2: low ×5, lower ×2, newest ×6, widest ×3. Pairs equally frequent are a tie."""
    text = ["low " * 5 + "lower " * 2 + "newest " * 6 + "widest " * 3]
    before = 4 + len({*"lowernewestwidest", " ", "￭"})
    learned = [trained(text, vocab_size=before + merges).tokens(range(before, before + merges)) for merges in range(9)]
    assert learned[3][2] == "est</w>"  # 9 times, whichever of its three parts met first
    assert learned[5][3:] == ["lo", "low"]  # 7 times
    assert {"newest</w>", "low</w>"} <= set(
        learned[8] + trained(text, vocab_size=before + 11).tokens(range(before + 11))
    )
    tokenizer = trained(text, vocab_size=before + 5)
    assert tokenizer.tokens(tokenizer.encode("lowest")) == ["low", "est</w>"]  # the paper's word never seen


def test_merges_by_hand():
    tokenizer = trained(["ab ab ab abc abc"], vocab_size=13)
    # a+b 5 times, then ab+</w> 3 times, then ab+c and c+</w> twice each: the vocabulary is full after four.
    assert [tuple(step) for step in tokenizer.merges_of("ab")] == [
        (0, "a", "b", ["ab", "</w>"]),
        (1, "ab", "</w>", ["ab</w>"]),
    ]
    assert tokenizer.vocab_size == 13
    assert len(tokenizer.merges_of("abc")) == 3


@settings(max_examples=300, deadline=None)
@given(st.text("abcdefghxyz", min_size=1, max_size=25))
def test_merging_by_hand_ends_where_the_compiled_library_does(word):
    symbols = [*("<unk>" if letter in "xyz" else letter for letter in word), "</w>"]
    for step in TOKENIZER.merges_of(word):
        places = [i for i in range(len(symbols) - 1) if symbols[i : i + 2] == [step.left, step.right]]
        symbols[places[0] : places[0] + 2] = [step.left + step.right]
        assert step.symbols == symbols
    assert symbols == TOKENIZER.tokens(TOKENIZER.encode(word))


def test_the_merges_of_several_words_follow_one_another():
    assert TOKENIZER.merges_of("abc hgf.") == [
        *TOKENIZER.merges_of("abc"),
        *TOKENIZER.merges_of("hgf."),
    ]


def characters(text: str) -> list[int]:
    return TOKENIZER.resample(TOKENIZER.encode(text), 1.0, np.random.default_rng(0))


@settings(max_examples=200, deadline=None)
@given(st.text("abcdefghxyz- .", max_size=60), st.floats(0, 1), st.integers(0, 2**32))
def test_dropout_changes_the_segmentation_and_never_the_text(text, dropout, seed):
    ids = TOKENIZER.encode(text)
    resampled = TOKENIZER.resample(ids, dropout, np.random.default_rng(seed))
    assert TOKENIZER.decode(resampled) == TOKENIZER.decode(ids)
    assert resampled.count(TOKENIZER.unknown_id) == ids.count(TOKENIZER.unknown_id)
    assert TOKENIZER.resample(ids, dropout, np.random.default_rng(seed)) == resampled
    assert TOKENIZER.resample(resampled, 0.0, np.random.default_rng(seed)) == ids
    assert TOKENIZER.resample(np.array(ids, int), 0.0, np.random.default_rng(seed)) == ids


def test_dropout_one_gives_characters():
    ids = characters("abc-d")
    assert TOKENIZER.tokens(ids) == ["a", "b", "c", "</w>", "￭", "-", "￭", "</w>", "d", "</w>"]


def test_merges_do_not_cross_special_tokens():
    ids = [1, *TOKENIZER.encode(TEXT[0]), 2, *TOKENIZER.encode(TEXT[1]), 2, 0, 0]
    assert TOKENIZER.resample(ids, 0.0, np.random.default_rng(0)) == ids
    half_a_word = [TOKENIZER.encode("a")[0], 2, TOKENIZER.encode("b")[0]]
    assert TOKENIZER.resample(half_a_word, 0.5, np.random.default_rng(0)).count(2) == 1


def test_each_merge_is_dropped_with_the_dropout_probability():
    """One word, one possible merge at a time: the share of words left uncut is (1 - p)², within 4 standard errors."""
    tokenizer = trained(["ab ab"], vocab_size=10)
    word = tokenizer.encode("ab")
    assert len(word) == 1
    generator = np.random.default_rng(3)
    for dropout in (0.1, 0.5):
        whole = np.mean([tokenizer.resample(word, dropout, generator) == word for _ in range(4000)])
        # After "ab" is merged only "ab</w>" is possible; before it, only "ab".
        expected = (1 - dropout) ** 2
        assert abs(whole - expected) < 4 * np.sqrt(expected * (1 - expected) / 4000)


def test_a_sentence_without_spaces_is_one_long_word():
    word = "".join(TEXT).replace(" ", "").replace(".", "").replace("-", "")[:400]
    ids = TOKENIZER.encode(word)
    assert TOKENIZER.resample(ids, 0.0, np.random.default_rng(0)) == ids


def test_other_kinds_have_no_merges():
    for kind in ("word", "char"):
        tokenizer = trained(TEXT, kind=kind)
        ids = tokenizer.encode(TEXT[0])
        assert tokenizer.resample(ids, 0.5, np.random.default_rng(0)) == ids
        assert tokenizer.merges_of("abc") == []


def test_dropout_must_be_a_probability():
    with pytest.raises(ConfigError, match="bpe_dropout=2 is not a probability; choose it from 0 to 1"):
        TOKENIZER.resample([4], 2, np.random.default_rng(0))
