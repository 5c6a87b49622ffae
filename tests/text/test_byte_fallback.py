"""Byte fallback: BPE encodes characters outside the vocabulary as bytes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.errors import ConfigError, DataError
from glassformer.text import TextConfig, Tokenizer, TokenizerPair, train_tokenizers

LINES = ["Two dogs run on the grass.", "A dog isn't a boat, is it?", "Zwei Hunde laufen über Gras – <s>."] * 3
HARD = [
    "Привет 🚀!",
    "naïve 日本。 x",
    "<0x41> <0xE2><s> </w>",
    "e\u0301 ￭ ■ \u200d 👩‍👩‍👧",
    "dogs\n\n  run\t",
    "é" * 300,
    "",
]


def trained(lines: list[str], **choices) -> Tokenizer:
    config = TextConfig.parse({"vocab_size": 500, "byte_fallback": True, **choices})
    return train_tokenizers(config, lambda: iter(lines), lambda: iter(())).source


TOKENIZER = trained(LINES)


@pytest.mark.parametrize("pre_tokenizer", ["punctuation", "whitespace"])
@pytest.mark.parametrize("text", HARD)
def test_byte_fallback_restores_unknown_characters(pre_tokenizer, text):
    tokenizer = trained([*LINES, "<0x41> <0x42>"] * 2, pre_tokenizer=pre_tokenizer)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == tokenizer.normalize(text)
    assert tokenizer.unknown_id not in ids
    assert not set(ids) & set(tokenizer.special_tokens.values())


@settings(max_examples=500, deadline=None)
@given(st.text(max_size=60))
def test_byte_fallback_round_trips_normalized_text(text):
    ids = TOKENIZER.encode(text)
    assert TOKENIZER.unknown_id not in ids
    assert TOKENIZER.decode(ids) == TOKENIZER.normalize(text)


def test_byte_fallback_does_not_change_known_text():
    """All characters are frequent here, so the merges are equal and the ids shift by 256."""
    plain = trained(LINES, byte_fallback=False, vocab_size=244)
    assert TOKENIZER.vocab_size == plain.vocab_size + 256
    for line in LINES:
        assert TOKENIZER.tokens(TOKENIZER.encode(line)) == plain.tokens(plain.encode(line))


def test_fallback_bytes_follow_the_special_tokens():
    tokenizer = trained(LINES, vocab_size=310, extra_special=["[MASK]"])
    assert tokenizer.vocab_size == 310
    assert tokenizer.tokens([4, 5, 260]) == ["[MASK]", "<0x00>", "<0xFF>"]
    assert trained(LINES, merges=3).vocab_size == len({*"".join(LINES), "￭"}) + 4 + 256 + 3
    with pytest.raises(DataError, match=r"characters, 256 bytes and 4 special tokens of source.*; choose at least \d+"):
        trained(LINES, vocab_size=270)


def test_byte_fallback_encodes_rare_characters_as_bytes():
    lines = [*["aaa bbb ccc"] * 5, "日 日 日", "本 本"]
    tokenizer = trained(lines, min_frequency=3)
    assert tokenizer.tokens(tokenizer.encode("本")) == ["<0xE6>", "<0x9C>", "<0xAC>", "</w>"]
    assert "日" in "".join(tokenizer.tokens(tokenizer.encode("日")))
    kept = trained(lines, min_frequency=3, byte_fallback=False)
    assert kept.tokens(kept.encode("本"))[0] == "本"
    assert trained(["xyz"], min_frequency=9).decode(trained(["xyz"], min_frequency=9).encode("xyz")) == "xyz"


def test_invalid_bytes_decode_to_replacement_characters():
    ids = TOKENIZER.encode("a 日")
    assert TOKENIZER.decode(ids[:-2]) == "a \ufffd"
    assert TOKENIZER.decode(ids[:-1]) == "a 日"


def test_word_of_assigns_bytes_to_their_word():
    for text in HARD:
        normalized = TOKENIZER.normalize(text)
        words = TOKENIZER.word_of(TOKENIZER.encode(text))
        assert -1 not in words
        assert len(set(words)) == len(normalized.split())


@settings(max_examples=200, deadline=None)
@given(st.text("abдogs日 .🚀", max_size=40), st.floats(0, 1), st.integers(0, 2**32))
def test_dropout_changes_only_the_segmentation(text, dropout, seed):
    ids = TOKENIZER.encode(text)
    resampled = TOKENIZER.resample(ids, dropout, np.random.default_rng(seed))
    assert TOKENIZER.decode(resampled) == TOKENIZER.normalize(text)
    assert TOKENIZER.resample(ids, 0.0, np.random.default_rng(seed)) == ids


def test_merges_of_start_with_bytes():
    steps = TOKENIZER.merges_of("日dogs")
    assert steps[-1].symbols == TOKENIZER.tokens(TOKENIZER.encode("日dogs"))
    assert steps[0].symbols[:3] == ["<0xE6>", "<0x97>", "<0xA5>"]


def test_tokenizer_pair_round_trips_through_json(tmp_path):
    config = TextConfig(vocab_size=400, byte_fallback=True, joint=False)
    written = train_tokenizers(config, lambda: iter(LINES), lambda: iter(LINES[:2]))
    written.save(tmp_path / "tokenizer.json")
    read = TokenizerPair.load(tmp_path / "tokenizer.json")
    assert read.fingerprint == written.fingerprint
    assert [read.target.decode(read.target.encode(text)) for text in HARD] == [*map(written.target.normalize, HARD)]


@pytest.mark.parametrize(
    ("kind", "why"), [("word", "has no subwords"), ("char", "has no subwords"), ("bytes", "already has")]
)
def test_byte_fallback_requires_bpe(kind, why):
    with pytest.raises(ConfigError, match=f'byte_fallback=true needs kind="bpe": "{kind}" {why}'):
        TextConfig.parse({"kind": kind, "byte_fallback": True})
    assert not TextConfig.parse({"kind": kind}).byte_fallback
