"""How good a model is: translation metrics with their signatures, likelihood, accuracy, word alignment."""

from glassformer.evaluate.accuracy import accuracy, exact_match
from glassformer.evaluate.alignment import Links, alignment_error_rate, read_pharaoh, write_pharaoh
from glassformer.evaluate.likelihood import bits_per_character, perplexity
from glassformer.evaluate.significance import Comparison, paired_bootstrap
from glassformer.evaluate.translation import Score, bleu, chrf

__all__ = [
    "Comparison",
    "Links",
    "Score",
    "accuracy",
    "alignment_error_rate",
    "bits_per_character",
    "bleu",
    "chrf",
    "exact_match",
    "paired_bootstrap",
    "perplexity",
    "read_pharaoh",
    "write_pharaoh",
]
