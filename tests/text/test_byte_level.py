"""Byte-level BPE in GPT-2's scheme: lossless for every text."""

import random
import unicodedata
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from glassformer.errors import ConfigError, DataError
from glassformer.text import ByteTextConfig, TextConfig, Tokenizer, TokenizerPair, train_tokenizers
from glassformer.text.byte_level import byte_characters, readable, words_of_pieces

CODE = [
    "def greet(name):\n    if name:\n        return f'Hello, {name}!'\n    return 'Hello'\n\n\n",
    "class Dog:\n\tdef bark(self):\n\t\tself.count += 1\n\t\treturn 'naïve 日本'\n",
    "it's 42, isn't it?  don't\r\n",
] * 5
HARD = [
    "",
    " ",
    "\n",
    "a\n  b",
    "a\r\nb\rc\x85d\u2028e",
    "\x00\x01\x7f\t",
    "\ufeffbyte order mark",
    "<s> </s> <pad><unk> [MASK] <0x41>",
    "e\u0301 é ﬁ Ⅷ ￭ ■ ▁ Ġ Ċ",
    "👩‍👩‍👧 🏴󠁧󠁢󠁥󠁮󠁧󠁿 Привет 日本語 עברית \U0010ffff\uffff",
    "   three    four\t\ttabs   ",
    "'s't're've'm'll'd's't",
    "x" * 3000,
    " " * 300 + "\n" * 300 + "x",
]


def trained(lines: list[str], **choices) -> Tokenizer:
    config = TextConfig.parse({"kind": "bytes", "vocab_size": 400, **choices})
    return train_tokenizers(config, lambda: iter(lines), lambda: iter(())).source


TOKENIZER = trained(CODE)


@pytest.mark.parametrize("text", HARD)
def test_byte_level_round_trips_difficult_texts(text):
    ids = TOKENIZER.encode(text)
    assert TOKENIZER.decode(ids) == text
    assert TOKENIZER.normalize(text) == text
    assert not set(ids) & set(TOKENIZER.special_tokens.values())


@settings(max_examples=500, deadline=None)
@given(st.text(max_size=80))
def test_byte_level_round_trips_every_text(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from(" \n\tab1'.\u3000é日s"), max_size=40), st.integers(0, 40))
def test_byte_level_encodes_text_cut_before_a_space_in_parts(text, place):
    """This property allows documents to be encoded in pieces."""
    if text[place : place + 1] in (" ", "\n") and not text[place - 1 : place].isspace() and place:
        assert TOKENIZER.encode(text[:place]) + TOKENIZER.encode(text[place:]) == TOKENIZER.encode(text)


def test_byte_level_replaces_lone_surrogates():
    assert TOKENIZER.decode(TOKENIZER.encode("a\ud83db")) == "a\ufffdb"


def test_byte_level_vocabulary_has_special_tokens_bytes_merges():
    smallest = trained(["a"], vocab_size=260)
    assert smallest.vocab_size == 260
    assert smallest.decode(smallest.encode("日本\n")) == "日本\n"
    assert len(smallest.encode("日本\n")) == 7
    assert sorted(smallest.tokens(range(4, 260))) == sorted(readable(bytes([byte])) for byte in range(256))
    assert TOKENIZER.tokens(range(4)) == ["<pad>", "<s>", "</s>", "<unk>"]
    assert trained(CODE, extra_special=["[MASK]"]).tokens([4]) == ["[MASK]"]
    assert trained(CODE, merges=7).vocab_size == 267


def test_byte_characters_equal_the_library_alphabet():
    assert sorted(byte_characters()) == sorted(pre_tokenizers.ByteLevel.alphabet())
    assert byte_characters()[ord(" ")] == "Ġ"
    assert byte_characters()[ord("\n")] == "Ċ"


def test_byte_level_training_refuses_small_vocabularies_and_empty_text():
    with pytest.raises(DataError, match=r"vocab_size=259 is too small for the 256 bytes and 4 .* at least 260"):
        trained(CODE, vocab_size=259)
    with pytest.raises(DataError, match="no text"):
        trained(["", " \n"])


def test_byte_level_tokens_are_readable():
    assert TOKENIZER.tokens(TOKENIZER.encode("return\n    return 日本")) == ["return", "\n   ", " return", " 日本"]
    assert TOKENIZER.tokens(TOKENIZER.encode("日")) == ["<0xE6><0x97>", "<0xA5>"]
    assert trained(["return"] * 3).tokens(TOKENIZER.encode("é")[:1]) == ["<0xC3>"]
    assert readable("a日".encode()[:3]) == "a<0xE6><0x97>"
    assert readable("\ufffd".encode()) == "\ufffd"


def test_invalid_bytes_decode_to_replacement_characters():
    ids = TOKENIZER.encode("é")
    plain = trained(["a"], vocab_size=260)
    assert plain.decode(plain.encode("xé")[:-1]) == "x\ufffd"
    assert TOKENIZER.decode([1, *ids, 2]) == "é"


def test_word_of_agrees_with_split():
    for text in [*HARD, *CODE]:
        ids = TOKENIZER.encode(text)
        words, split = TOKENIZER.word_of(ids), text.split()
        assert len(words) == len(ids)
        assert words == sorted(words)
        if split:
            assert max(words) == len(split) - 1
        for number, word in enumerate(split):
            own = TOKENIZER.decode([i for i, index in zip(ids, words, strict=True) if index == number])
            assert own.strip() == word
    assert TOKENIZER.word_of([1, *TOKENIZER.encode("a b"), 2, 3]) == [-1, 0, 0, 1, -1, 1]


def test_words_of_pieces_joins_the_bytes_of_a_character():
    assert words_of_pieces([b"a", b"\xe3", b"\x80\x80", b"b", b"\xe6\x97", b"\xa5", b"", b" \t"]) == [
        *[0, 0, 0, 1, 1, 1],
        *[-1, 1],
    ]


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40) | st.sampled_from(CODE), st.floats(0, 1), st.integers(0, 2**32))
def test_dropout_changes_only_the_segmentation(text, dropout, seed):
    ids = [1, *TOKENIZER.encode(text), 2]
    resampled = TOKENIZER.resample(ids, dropout, np.random.default_rng(seed))
    assert TOKENIZER.decode(resampled) == text
    assert (resampled[0], resampled[-1]) == (1, 2)


def test_dropout_0_equals_encode_and_1_gives_single_bytes():
    for text in [*CODE, *HARD[:-2]]:
        ids = TOKENIZER.encode(text)
        assert TOKENIZER.resample(ids, 0.0, np.random.default_rng(0)) == ids
        assert len(TOKENIZER.resample(ids, 1.0, np.random.default_rng(0))) == len(text.encode())
    cut = TOKENIZER.resample(trained(["a"], vocab_size=260).encode("日")[:2], 0.5, np.random.default_rng(0))
    assert TOKENIZER.decode(cut) == "\ufffd"


@pytest.mark.parametrize("text", ["return", "    if name", "isn't", "日", "return self.count\n", "Hello, 日本"])
def test_merges_of_end_at_the_library_encoding(text):
    symbols = list[str]()
    words = [word for word, _ in pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)]
    for word in words:
        raw = bytes(byte_characters().index(character) for character in word).decode()
        steps = TOKENIZER.merges_of(raw)
        symbols += steps[-1].symbols if steps else TOKENIZER.tokens(TOKENIZER.encode(raw))
    assert symbols == TOKENIZER.tokens(TOKENIZER.encode(text))


def test_byte_level_normalization_is_off_by_default_and_warns():
    assert TextConfig(kind="bytes").normalization == "none"
    assert TextConfig(kind="bpe").normalization == TextConfig().normalization == "nfc"
    assert ByteTextConfig().kind == "bytes"
    assert ByteTextConfig().normalization == "none"
    assert ByteTextConfig(kind="char").normalization == "nfc"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(CODE)
    for choices, named in [
        ({"lowercase": True}, "text.lowercase=true with"),
        ({"normalization": "nfkc"}, 'text.normalization="nfkc" with'),
        ({"lowercase": True, "normalization": "nfc"}, 'text.lowercase=true and text.normalization="nfc" with'),
    ]:
        with pytest.warns(UserWarning, match=f"{named} kind=.bytes.: decoding returns normalized text"):
            tokenizer = trained(CODE, **choices)
        text = "Hello e\u0301 ﬁ\n"
        expected = text.lower() if choices.get("lowercase") else text
        if form := choices.get("normalization"):
            expected = unicodedata.normalize(form.upper(), expected)
        assert tokenizer.decode(tokenizer.encode(text)) == tokenizer.normalize(text) == expected


def test_special_token_without_a_letter_is_refused():
    with pytest.raises(ConfigError, match="'<_>' in extra_special has no letter"):
        TextConfig.parse({"kind": "bytes", "extra_special": ["<_>"]})


def test_tokenizer_pair_round_trips_through_json(tmp_path):
    config = TextConfig(kind="bytes", vocab_size=300)
    written = train_tokenizers(config, lambda: iter(CODE), lambda: iter(CODE[:1]))
    written.save(tmp_path / "tokenizer.json")
    read = TokenizerPair.load(tmp_path / "tokenizer.json")
    assert read.fingerprint == written.fingerprint
    assert read.source.to_json() == written.source.to_json()
    assert read.source.encode_batch(HARD) == written.source.encode_batch(HARD)
    assert [read.source.decode(read.source.encode(text)) for text in HARD] == HARD


def test_byte_level_round_trips_random_unicode():
    draw = random.Random(3)
    planes = [*range(0xD800), *range(0xE000, 0x110000, 7)]
    texts = ["".join(map(chr, draw.choices(planes, k=draw.randint(1, 40)))) for _ in range(500)]
    assert [TOKENIZER.decode(ids) for ids in TOKENIZER.encode_batch(texts)] == texts
