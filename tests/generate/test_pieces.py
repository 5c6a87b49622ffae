"""Combining the hypotheses of the pieces of a long text."""

import math

import pytest

from glassformer.generate import DecodingConfig, Hypothesis, LanguageDecodingConfig, TranslationDecodingConfig
from glassformer.generate.pieces import best_choices, united

CONFIG = DecodingConfig.parse({"beam_size": 2, "n_best": 2, "length_penalty": "none"})
ENDED = Hypothesis([5], -3.0, -3.0, [-1.0, -2.0])
CUT = Hypothesis([5, 6], -2.0, -2.0, [-1.0, -1.0], "length", end_log_prob=-9.0)


def test_best_choices_ranks_a_cut_hypothesis_with_its_end() -> None:
    """A cut text includes all its continuations, so its own probability would be too high to compare."""
    assert best_choices([[ENDED, CUT], [ENDED, CUT]], CONFIG)[0] == [0, 0]


def test_best_choices_start_with_the_best_of_each_piece() -> None:
    likely, unlikely = Hypothesis([1], -1.0, -1.0, [-1.0]), Hypothesis([2], -4.0, -4.0, [-4.0])
    assert best_choices([[likely, unlikely], [ENDED, CUT]], CONFIG) == [[0, 0], [1, 0]]


@pytest.mark.parametrize(("pieces", "reason"), [([ENDED, ENDED], "end"), ([CUT, ENDED], "length")])
def test_united_hypothesis_is_cut_if_a_piece_is_cut(pieces: list[Hypothesis], reason: str) -> None:
    whole = united(pieces, 2, CONFIG)
    assert whole.finish_reason == reason
    assert len(whole.predicted(2)) == len(whole.token_log_probs)


@pytest.mark.parametrize("kind", [TranslationDecodingConfig, LanguageDecodingConfig])
def test_decoding_config_round_trips_through_a_checkpoint(kind: type[DecodingConfig]) -> None:
    config = kind.parse({"logit_bias": {"#5": -math.inf, "the": 1.5}})
    assert kind.parse_stored(config.model_dump(mode="json"), "config.json") == config
