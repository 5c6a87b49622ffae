"""Hypotheses of the pieces of a long text, put together."""

import math

import pytest

from glassformer.generate import DecodingConfig, Hypothesis, LanguageDecodingConfig, TranslationDecodingConfig
from glassformer.generate.pieces import best_choices, united

CONFIG = DecodingConfig.parse({"beam_size": 2, "n_best": 2, "length_penalty": "none"})
ENDED = Hypothesis([5], -3.0, -3.0, [-1.0, -2.0])
CUT = Hypothesis([5, 6], -2.0, -2.0, [-1.0, -1.0], "length", end_log_prob=-9.0)


def test_a_cut_hypothesis_counts_as_if_it_ended() -> None:
    """The probability of a cut text is that of all its continuations, which is more than that of any one text."""
    assert best_choices([[ENDED, CUT], [ENDED, CUT]], CONFIG)[0] == [0, 0]


def test_the_first_union_consists_of_the_first_of_each_piece_without_a_length_penalty() -> None:
    likely, unlikely = Hypothesis([1], -1.0, -1.0, [-1.0]), Hypothesis([2], -4.0, -4.0, [-4.0])
    assert best_choices([[likely, unlikely], [ENDED, CUT]], CONFIG) == [[0, 0], [1, 0]]


@pytest.mark.parametrize(("pieces", "reason"), [([ENDED, ENDED], "end"), ([CUT, ENDED], "length")])
def test_a_union_is_cut_where_one_of_its_pieces_is(pieces: list[Hypothesis], reason: str) -> None:
    whole = united(pieces, 2, CONFIG)
    assert whole.finish_reason == reason
    assert len(whole.predicted(2)) == len(whole.token_log_probs)


@pytest.mark.parametrize("kind", [TranslationDecodingConfig, LanguageDecodingConfig])
def test_settings_of_decoding_come_back_from_a_checkpoint(kind: type[DecodingConfig]) -> None:
    config = kind.parse({"logit_bias": {"#5": -math.inf, "the": 1.5}})
    assert kind.parse_stored(config.model_dump(mode="json"), "config.json") == config
