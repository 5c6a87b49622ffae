"""Splitting long texts into pieces that fit, at the best boundaries, without loss."""

import random
import re
from collections.abc import Callable

import pytest

from glassformer import DataError
from glassformer.text import TextConfig, Tokenizer, train_tokenizers
from glassformer.text.sentences import ends_in_word, join_texts, sentences, split_text

LINES = ["the old cat sleeps in the tree.", "she doesn't see a small dog, and I love you!", "日本語の文。"]
ALPHABET = [*"aе日本。、！,.;!?\"'… \t\n\u00a0-😀\u0301\u200d\ufe0fИß", "the ", "cat ", "Dr. ", "e.g. ", " ", "。 "]


def tokenizer(kind: str) -> Tokenizer:
    config = TextConfig.parse({"kind": kind, "min_frequency": 1, "vocab_size": 200})
    return train_tokenizers(config, lambda: iter(LINES), lambda: iter(LINES)).source


def length_in(kind: str) -> Callable[[str], int]:
    vocabulary = tokenizer(kind)
    return lambda text: len(vocabulary.encode(text)) + 1


@pytest.mark.parametrize("kind", ["bpe", "char", "word"])
@pytest.mark.parametrize("seed", range(6))
def test_split_text_pieces_fit_and_join_to_the_text(kind: str, seed: int) -> None:
    draw, length = random.Random(seed), length_in(kind)
    for size in (1, 5, 40, 400):
        text = "".join(draw.choices(ALPHABET, k=size))
        limit = draw.choice([5, 8, 20, 60])
        pieces = split_text(text, limit, length)
        assert "".join(pieces) == text
        assert max(map(length, pieces)) <= limit
        assert (len(pieces) == 1) == (length(text) <= limit) or kind == "word"
        assert split_text(text, 10**6, length) == [text]


def test_split_text_cuts_after_each_sentence() -> None:
    text = 'Dr. J. Smith has 3.5 dogs, e.g. this one. "Really?" he asked. Yes! No… Ok.  日本。本「日。」語！ A.'
    expected = ["Dr. J. Smith has 3.5 dogs, e.g. this one. ", '"Really?" he asked. ', "Yes! ", "No… ", "Ok.  "]
    expected += ["日本。", "本「日。」", "語！ ", "A."]
    assert sentences(text) == expected
    assert split_text(text, 60, len) == expected
    assert split_text(text, 1000, len) == [text]


def test_split_text_accepts_lower_case_sentences_if_needed() -> None:
    text = "the cat sleeps . it is old! dr. x sees it. ok."
    assert sentences(text) == [text]
    assert split_text(text, 30, len) == ["the cat sleeps . ", "it is old! ", "dr. x sees it. ", "ok."]


def test_split_text_prefers_clauses_then_spaces_then_words() -> None:
    clauses = "the cat sleeps in the old tree, and the dog sees it there"
    assert split_text(clauses, 40, len) == ["the cat sleeps in the old tree, ", "and the dog sees it there"]
    words = "the cat sleeps and the dogs see"
    assert split_text(words, 20, len) == ["the cat sleeps ", "and the dogs see"]
    assert split_text("x" * 100, 30, len) == ["x" * 25] * 4
    assert split_text("a " + "x" * 40, 30, len) == ["a ", "x" * 20, "x" * 20]


def test_split_text_keeps_combined_characters_together() -> None:
    family = "👩\u200d👩\u200d👧"
    assert all(not piece.startswith(("\u200d", "👧")) or piece == family for piece in split_text(family * 8, 12, len))
    assert not any(piece.startswith("\u0301") for piece in split_text("e\u0301" * 101, 30, len))


def test_split_text_refuses_a_limit_below_one_character() -> None:
    with pytest.raises(DataError, match=r"^max_source=2 is less than the 3 tokens of 'a'; raise it$"):
        split_text("aaaa", 2, lambda text: len(text) + 2)


@pytest.mark.parametrize(
    "text", ["x" * 100_000, "the cat " * 12_000, "。" * 50_000, "a." * 50_000, "a. " * 30_000, " " * 100_000]
)
def test_split_text_measures_long_texts_in_linear_time(text: str) -> None:
    """Counts the measured characters: each halving measures the text once."""
    measured = 0

    def length(piece: str) -> int:
        nonlocal measured
        measured += len(piece)
        return len(piece)

    pieces = split_text(text, 256, length)
    assert "".join(pieces) == text
    assert measured <= 14 * len(text)


def test_join_texts_follows_the_script() -> None:
    assert join_texts(["Un chat.", "Il dort."], ["A cat. ", "It sleeps."]) == "Un chat. Il dort."
    assert join_texts(["A cat.", "It sleeps."], ["猫。", "寝る。"]) == "A cat. It sleeps."
    assert join_texts(["猫。", "寝る。"], ["A cat. ", "It sleeps."]) == "猫。寝る。"
    assert join_texts(["ab", "cd", "ef"], ["xx", "xx ", "xx"]) == "abcd ef"
    assert join_texts(["ab", "", "ef"], ["xx", "xx ", "xx"]) == "ab ef"
    assert join_texts(["", ""], ["a ", "b"]) == ""
    assert join_texts(["고양이", "잔다"], ["a ", "b"]) == "고양이 잔다"


def test_split_text_marks_pieces_cut_in_a_word() -> None:
    assert [ends_in_word(piece) for piece in ("ab", "ab ", "ab.", "日本", "")] == [True, False, False, False, False]
    text = "the cat sleeps. " * 30 + "x" * 500
    pieces = split_text(text, 64, len)
    assert join_texts([re.sub(r"\s+$", "", piece) for piece in pieces], pieces) == text


@pytest.mark.parametrize("mark", [".", "!", ",", ";", ".)"])
def test_split_text_cuts_100_000_punctuation_marks(mark: str) -> None:
    """Expressions that restart at every mark would take hours here."""
    text = mark * 100_000
    pieces = split_text(text, 1000, len)
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= 1000
