"""Known annotations, and the round trip for any text: ``decode(encode(text)) == normalize(text)``."""

import random
import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.errors import ConfigError
from glassformer.text import TextConfig, Tokenizer, train_tokenizers

# Latin, digits, punctuation in runs, Chinese, Japanese, Arabic, Hebrew, Devanagari, accents, emoji, joiners, controls.
MIXED = (
    "aZß19 .,!-'\"()…«<s>/</w>中文。日本ゃمَرשׁלकि्षİΣﬁ￭■"
    "\u0301\u0308\u0323❤\ufe0f👍\U0001f3fd👩\u200d👧\u200b\n\0\u00a0\u2028"
)
# The compiled library and the standard one know different versions of Unicode; what 3.2 had is settled in both.
SETTLED = st.characters(exclude_categories=["Cs"]).filter(lambda c: unicodedata.ucd_3_2_0.category(c) != "Cn")
ANY_TEXT = st.text(st.sampled_from(MIXED) | SETTLED, max_size=40)


def trained(*lines: str, **choices) -> Tokenizer:
    config = TextConfig.parse({"vocab_size": 400, "min_frequency": 1, **choices})
    return train_tokenizers(config, lambda: iter(lines), lambda: iter(())).source


def by_definition(text: str, form: str) -> str:
    """Normalization written once more, with the standard library."""
    text = text.replace("￭", "■")
    text = text if form == "none" else unicodedata.normalize(form.upper(), text)
    spaced = "".join(" " if unicodedata.category(c) in {"Zs", "Zl", "Zp", "Cc"} else c for c in text)
    return re.sub(" +", " ", spaced).strip(" ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dogs.", ["dogs", "￭."]),
        ("dogs run", ["dogs", "run"]),
        ('"Hello" he', ['"￭', "Hello", '￭"', "he"]),
        ("T-Shirt", ["T", "￭-￭", "Shirt"]),
        ("a ... b?!", ["a", ".", "￭.", "￭.", "b", "￭?", "￭!"]),
        ("3.14 $5", ["3", "￭.￭", "14", "$￭", "5"]),
        ("中文。好", ["中文", "￭。￭", "好"]),
        ("कि हिन्दी।", ["कि", "हिन्दी", "￭।"]),
        ("שָׁלוֹם, عَرَبِيّ", ["שָׁלוֹם", "￭,", "عَرَبِيّ"]),
        ("I❤️👩‍👩‍👧👍🏽ok", ["I", "￭❤️", "￭👩‍👩‍👧", "￭👍🏽￭", "ok"]),
        ("a￭b", ["a", "￭■￭", "b"]),
        ("<s>", ["<￭", "s", "￭>"]),
        (" \n\0 x\ty ", ["x", "y"]),
    ],
)
def test_punctuation_stands_apart_and_joiners_say_where_no_space_stood(text, words):
    tokenizer = trained(text, kind="word")
    assert tokenizer.tokens(tokenizer.encode(text)) == words
    assert tokenizer.decode(tokenizer.encode(text)) == by_definition(text, "nfc")


def test_a_word_is_the_same_unit_before_a_space_and_before_a_full_stop():
    tokenizer = trained("dogs dogs. dogs, (dogs)")
    unit = tokenizer.encode("dogs")
    assert tokenizer.tokens(unit) == ["dogs</w>"]
    assert [tokenizer.encode(t)[0] for t in ("dogs run", "dogs.", "dogs,")] == unit * 3
    assert unit[0] in tokenizer.encode("(dogs)")


@settings(max_examples=300, deadline=None)
@given(ANY_TEXT, st.sampled_from(["bpe", "word", "char"]), st.sampled_from(["none", "nfc", "nfkc"]), st.booleans())
def test_round_trip(text, kind, form, split_punctuation):
    pre_tokenizer = "punctuation" if split_punctuation else "whitespace"
    tokenizer = trained(text + "x", kind=kind, normalization=form, pre_tokenizer=pre_tokenizer)
    ids = tokenizer.encode(text + "x")
    expected = by_definition(text + "x", form)
    if kind == "char":
        expected = text + "x" if form == "none" else unicodedata.normalize(form.upper(), text + "x")
    assert not {0, 1, 2, 3} & set(ids)
    assert tokenizer.decode(ids) == expected == tokenizer.normalize(text + "x")
    assert tokenizer.normalize(expected) == expected


@settings(max_examples=200, deadline=None)
@given(ANY_TEXT, st.sampled_from(["punctuation", "whitespace"]), st.randoms(use_true_random=False))
def test_round_trip_of_known_characters_in_new_orders(text, pre_tokenizer, order: random.Random):
    """What the vocabulary must hold is the characters: each may begin a word, end one, or stand beside any other."""
    tokenizer = trained(text + "x.", normalization="none", pre_tokenizer=pre_tokenizer)
    shuffled = "".join(order.sample(text, len(text)))
    ids = tokenizer.encode(shuffled)
    assert tokenizer.unknown_id not in ids
    assert tokenizer.decode(ids) == by_definition(shuffled, "none")


@settings(max_examples=100, deadline=None)
@given(ANY_TEXT)
def test_the_index_of_a_word_is_its_place_between_spaces(text):
    """Also of single characters, where a joiner and its space are two tokens."""
    choices = ({}, {"pre_tokenizer": "whitespace"}, {"kind": "word"})
    for choice, dropout in ((choice, dropout) for choice in choices for dropout in (0.0, 1.0)):
        tokenizer = trained("x " + text, **choice)
        ids = tokenizer.resample(tokenizer.encode(text), dropout, np.random.default_rng(1))
        words = tokenizer.normalize(text).split(" ") if ids else []
        of = tokenizer.word_of(ids)
        regrouped = [[i for i, index in zip(ids, of, strict=True) if index == k] for k in range(len(words))]
        assert [tokenizer.decode(group) for group in regrouped] == words


def test_word_indices_of_unknown_symbols_special_tokens_and_characters():
    tokenizer = trained("ab cd.")
    ids = [1, *tokenizer.encode("ab? ?"), 2, 0]
    assert [tokenizer.tokens([i])[0] for i in ids if i == 3] == ["<unk>", "<unk>"]
    assert tokenizer.word_of(ids)[0] == -1 == tokenizer.word_of(ids)[-1]
    assert sorted(set(tokenizer.word_of(ids)[1:-2])) == [0, 1]
    assert trained(" a  bc d", kind="char").word_of(trained(" a  bc d", kind="char").encode(" a  bc d")) == [
        *(0, 0, 0, 0),
        *(1, 1, 1),
        2,
    ]


def test_lowercase_and_compatibility_forms():
    tokenizer = trained("Straße ÀÉ ㎒", kind="word", lowercase=True, normalization="nfkc")
    assert tokenizer.normalize("STRASSE ÀÉ ㎒") == "strasse àé mhz"
    assert tokenizer.decode(tokenizer.encode("sTraße a\u0300é")) == "straße àé"
    dotted = trained("İ\u0323", lowercase=True).normalize("İ\u0323")
    assert dotted == unicodedata.normalize("NFC", dotted) == "ị\u0307"  # the lowered letter composes with the dot below
    assert trained("e\u0301").encode("é") == trained("é").encode("e\u0301") != [3, 3]
    assert trained("é", normalization="none").unknown_id in trained("é", normalization="none").encode("e\u0301")


def test_a_dropped_unknown_word_leaves_one_space():
    tokenizer = trained("a b.")
    ids = tokenizer.encode("a ? b.")
    assert tokenizer.unknown_id in ids
    assert tokenizer.decode(ids) == "a b."


def test_half_a_surrogate_pair_is_replaced():
    tokenizer = trained("a \ud83d b \ud83d\ude00")
    assert tokenizer.decode(tokenizer.encode("a \ud83d b \ud83d\ude00")) == "a \ufffd b 😀"


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"vocab_size": 0}, "vocab_size=0: input should be greater than 0"),
        ({"bpe_dropout": 1.5}, "bpe_dropout=1.5: input should be less than or equal to 1"),
        ({"kind": "char", "bpe_dropout": 0.1}, 'bpe_dropout=0.1 needs kind="bpe" or "bytes", not "char"'),
        ({"normalisation": "nfc"}, "did you mean normalization?"),
        ({"extra_special": ["MASK"]}, r"write it as \[NAME\] or <name>"),
        ({"extra_special": ["<s>"]}, "'<s>' is a special token already"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(choices, message):
    with pytest.raises(ConfigError, match=message):
        TextConfig.parse(choices, "text")


def test_the_limit_on_unknown_symbols_depends_on_the_kind():
    assert [TextConfig(kind=kind).unknown_rate_limit for kind in ("bpe", "char", "word")] == [0.01, 0.01, 1.0]
    assert TextConfig(kind="word", max_unknown_rate=0.0).unknown_rate_limit == 0.0
