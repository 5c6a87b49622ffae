"""Choosing tokens: greedy search, beam search and sampling over one protocol, with one list of logit filters."""

from glassformer.generate.candidates import LogitsError
from glassformer.generate.config import (
    DecodingConfig,
    Hypothesis,
    LanguageDecodingConfig,
    TranslationDecodingConfig,
    length_penalty,
    refuse_min_length,
)
from glassformer.generate.continuing import continue_texts, stream_text
from glassformer.generate.protocol import Decodable, Ensemble, SpecialTokens
from glassformer.generate.search import by_length, generate, score_pairs
from glassformer.generate.strings import StopStrings, stop_strings, token_biases

__all__ = [
    "Decodable",
    "DecodingConfig",
    "Ensemble",
    "Hypothesis",
    "LanguageDecodingConfig",
    "LogitsError",
    "SpecialTokens",
    "StopStrings",
    "TranslationDecodingConfig",
    "by_length",
    "continue_texts",
    "generate",
    "length_penalty",
    "refuse_min_length",
    "score_pairs",
    "stop_strings",
    "stream_text",
    "token_biases",
]
