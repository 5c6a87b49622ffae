"""Texts longer than ``max_source``: split, truncated or refused, never silently."""

import math
import re
import warnings
from collections.abc import Iterator

import pytest

import tiny_run
from glassformer import ConfigError, DataError, Translator
from glassformer.generate import DecodingConfig, Hypothesis, pieces
from glassformer.generate.pieces import best_choices, united
from glassformer.text.errors import LongTextWarning
from glassformer.text.sentences import join_texts, split_text
from random_translator import random_translator

SENTENCES = ["the old cat sleeps.", "she sees a tree.", "you sleep.", "the dog sees a cat!"]
LONG = " ".join(SENTENCES * 20)
WORDS = "the old cat sees a tree and " * 60


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return tiny_run.made(tmp_path_factory).translator


@pytest.fixture(autouse=True)
def _ignore_unknown_text() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* not in the vocabulary")
        yield


def length(translator: Translator, text: str) -> int:
    return len(translator.tokenizers.source.encode(text)) + 1


def of_length(caught: pytest.WarningsRecorder) -> list[warnings.WarningMessage]:
    return [one for one in caught if isinstance(one.message, LongTextWarning)]


def test_longest_source_is_the_training_max_length(translator: Translator) -> None:
    assert translator.longest_source == 256
    assert translator.too_long([LONG, "I"]) == [(0, length(translator, LONG))]
    assert length(translator, LONG) < translator.models[0].config.max_length


def test_long_text_is_translated_sentence_by_sentence(translator: Translator) -> None:
    with pytest.warns(LongTextWarning) as caught:
        found = translator.hypotheses(["I love you", LONG, "", SENTENCES[1]])
    (whole,) = found[1]
    assert [piece.source.strip() for piece in whole.pieces] == SENTENCES * 20
    assert "".join(piece.source for piece in whole.pieces) == whole.source == LONG
    alone = translator.translate(SENTENCES)
    assert [piece.text for piece in whole.pieces] == alone * 20
    assert whole.text == " ".join(text for text in alone * 20 if text)
    assert found[3][0].text == alone[1]
    tokens = length(translator, LONG)
    told = f"text 2: {tokens:,} tokens exceed the limit of 256; it is translated in 80 pieces"
    (warning,) = of_length(caught)
    assert str(warning.message) == told
    assert warning.filename == __file__


def test_translation_time_of_many_pieces_is_estimated_in_a_warning(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "LONG_SECONDS", 0.0)
    sentences = (SENTENCES * 40)[:-1]
    with warnings.catch_warnings(record=True, action="always") as caught:
        whole, short = translator.translate([" ".join(sentences), SENTENCES[0]])
    (warning,) = [one for one in caught if "takes about" in str(one.message)]
    assert re.fullmatch("translating 160 pieces takes about [0-9]+ s", str(warning.message))
    assert warning.filename == __file__
    alone = translator.translate(SENTENCES)
    assert whole == " ".join(text for text in (alone * 40)[:-1] if text)
    assert short == alone[0]


def test_short_translation_time_is_not_reported(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "LONG_SECONDS", 1e9)  # whatever else the machine does
    with pytest.warns(LongTextWarning) as caught:
        translator.translate([" ".join(SENTENCES * 40)])
    assert not [one for one in caught if "takes about" in str(one.message)]


def test_several_long_texts_produce_one_warning(translator: Translator) -> None:
    with pytest.warns(LongTextWarning, match=r"^text 2: .* pieces \(and 1 more text\)$") as caught:
        translator.translate(["I", LONG, "you", LONG])
    assert len(of_length(caught)) == 1


@pytest.mark.parametrize(
    "text", [WORDS, "x" * 2000, "tree, " * 300, "日本語" * 300], ids=["words", "word", "clauses", "ja"]
)
def test_long_text_without_sentences_is_translated_in_pieces_that_fit(translator: Translator, text: str) -> None:
    with pytest.warns(LongTextWarning):
        (whole,) = translator.hypotheses([text], max_source=50, max_extra=0)[0]
    assert "".join(piece.source for piece in whole.pieces) == text
    assert max(length(translator, piece.source) for piece in whole.pieces) <= 50
    assert [piece.source for piece in whole.pieces] == split_text(text, 50, lambda piece: length(translator, piece))


def test_short_texts_are_not_affected_by_long_texts_or_limits(translator: Translator) -> None:
    """Bit for bit, with a long text in the same call, and with a limit that they do not reach."""
    alone = translator.hypotheses(SENTENCES, n_best=2)
    with pytest.warns(LongTextWarning):
        beside = translator.hypotheses([*SENTENCES, LONG], n_best=2)
    assert beside[:4] == alone
    assert translator.hypotheses(SENTENCES, n_best=2, max_source=200) == alone
    assert not any(one.pieces for found in alone for one in found)


def test_only_texts_beyond_max_source_are_split(translator: Translator) -> None:
    text = "the cat sleeps"
    tokens = length(translator, text)
    assert translator.hypotheses([text], max_source=tokens) == translator.hypotheses([text])
    with pytest.warns(LongTextWarning):
        (whole,) = translator.hypotheses([text], max_source=tokens - 1)[0]
    assert len(whole.pieces) > 1


def test_long_text_is_truncated_or_refused_on_request(translator: Translator) -> None:
    ids = translator.tokenizers.source.encode(WORDS)[:29]
    start = translator.tokenizers.source.decode(ids)
    assert translator.tokenizers.source.encode(start) == ids
    with pytest.warns(LongTextWarning, match=r"^text 1: 5?\d+ tokens exceed the limit of 30; it is truncated$"):
        (found,) = translator.translate([WORDS], max_source=30, long_source="truncate")
    assert [found] == translator.translate([start])
    told = r"^text 2 has \d+ tokens, more than the limit of 30; shorten it, or choose long_source=split$"
    with pytest.raises(DataError, match=told):
        translator.translate(["I", WORDS], max_source=30, long_source="refuse")
    with pytest.raises(DataError, match=r"^source 1 has"):
        translator.score([WORDS], ["je"], max_source=30, long_source="refuse")


def test_scores_of_a_long_text_combine_those_of_its_pieces(translator: Translator) -> None:
    with pytest.warns(LongTextWarning):
        (found,) = translator.hypotheses([LONG], n_best=3)
    assert len(found) == 3
    for whole in found:
        pieces = [piece.hypothesis for piece in whole.pieces]
        assert whole.hypothesis.log_prob == pytest.approx(sum(one.log_prob for one in pieces))
        values = [value for one in pieces for value in one.token_log_probs]
        assert whole.hypothesis.token_log_probs == values
        assert len(whole.hypothesis.tokens) == len(values) - (whole.hypothesis.finish_reason == "end")
        penalty = ((5 + len(values)) / 6) ** 0.6
        assert whole.score == pytest.approx(whole.hypothesis.log_prob / penalty)
        text = translator.tokenizers.target.decode(whole.hypothesis.tokens)
        assert text.replace(" ", "") == whole.text.replace(" ", "")  # a piece may end within a word
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert len({tuple(one.hypothesis.tokens) for one in found}) == 3


def test_sampled_pieces_are_joined_in_sampling_order(translator: Translator) -> None:
    with pytest.warns(LongTextWarning):
        (found,) = translator.hypotheses([LONG], sample=True, n_best=2)
    drawn = translator.hypotheses(SENTENCES, sample=True, n_best=2)
    for rank, whole in enumerate(found):
        assert [piece.text for piece in whole.pieces] == [one[rank].text for one in drawn] * 20


def test_prefix_applies_to_the_first_piece(translator: Translator) -> None:
    with pytest.warns(LongTextWarning):
        (found,) = translator.hypotheses([LONG], ["je"])
    assert found[0].text.startswith("je")
    with pytest.warns(LongTextWarning):
        plain = translator.hypotheses([LONG])[0][0]
    assert found[0].pieces[1:] == plain.pieces[1:]


def test_links_of_a_long_text_are_those_of_its_pieces(translator: Translator) -> None:
    with pytest.warns(LongTextWarning):
        (whole,) = translator.hypotheses([LONG])[0]
    links, source, target = translator.links(whole), LONG.split(), whole.text.split()
    assert sorted(j for _, j in links) == list(range(len(target)))
    expected, n_source, n_target = [], 0, 0
    for piece in whole.pieces:
        expected += [(i + n_source, j + n_target) for i, j in translator.align(piece.source, piece.text)]
        n_source, n_target = n_source + len(piece.source.split()), n_target + len(piece.text.split())
    assert links == sorted(expected)
    assert (n_source, n_target) == (len(source), len(target))
    (short,) = translator.hypotheses(SENTENCES[:1])[0]
    assert translator.links(short) == translator.align(SENTENCES[0], short.text)


def test_score_and_align_read_a_long_text_at_once_with_a_warning(translator: Translator) -> None:
    with pytest.warns(LongTextWarning, match="; it is scored as one text$"):
        (scored,) = translator.score([LONG], ["je t'aime"])
    assert math.isfinite(scored.log_prob)
    with pytest.warns(LongTextWarning, match="; it is aligned as one text$"):
        assert len(translator.align(LONG, "je dors")) == 2


@pytest.mark.parametrize("kind", ["encoder_decoder", "learned", "ensemble"])
def test_every_translator_model_splits_long_texts(kind: str) -> None:
    words = [f"w{number}" for number in range(30)]
    translator = random_translator(words, max_length=16, **({"positions": "learned"} if kind == "learned" else {}))
    if kind == "ensemble":
        translator.models *= 2
    text = " ".join(words)
    with pytest.warns(LongTextWarning):
        (whole,) = translator.hypotheses([text], max_length=4, min_length=4)[0]
    assert len(whole.pieces) > 1
    assert whole.text == join_texts([piece.text for piece in whole.pieces], [piece.source for piece in whole.pieces])
    if kind == "learned":
        with pytest.raises(ConfigError, match=r"^max_source=17 exceeds the 16 learned positions; lower it$"):
            translator.translate([text], max_source=17)


def test_best_choices_ranks_combinations_of_pieces() -> None:
    def made(values: list[float]) -> list[Hypothesis]:
        return [Hypothesis([5], value, value, [value / 2] * 2) for value in values]

    pieces = [made([-1.0, -1.5, -4.0]), made([-2.0, -2.2, -9.0]), made([-0.5, -3.0, -3.1])]
    config = DecodingConfig(n_best=3, beam_size=3, length_penalty="none")
    assert best_choices(pieces, config) == [[0, 0, 0], [0, 1, 0], [1, 0, 0]]
    one = united([pieces[0][0], pieces[1][1]], 2, config)
    assert one.tokens == [5, 2, 5]
    assert one.log_prob == one.score == -3.2
