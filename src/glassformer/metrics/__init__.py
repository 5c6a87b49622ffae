"""Metrics of models: translation metrics with their signatures, likelihood, accuracy, forecasts.

Metrics by sacreBLEU are imported at first use, so that translating does not load it.
"""

from typing import TYPE_CHECKING

from glassformer.lazy_imports import lazy_attributes
from glassformer.metrics.class_report import accuracy, exact_match
from glassformer.metrics.forecast import ForecastErrors, LinearForecast, forecast_errors, repeat_last, seasonal_naive
from glassformer.metrics.likelihood import TextLikelihood, bits_per_character, perplexity, sliding_likelihood

if TYPE_CHECKING:
    from glassformer.metrics.corpus_metrics import METRICS, Comparison, corpus_scores, paired_bootstrap
    from glassformer.metrics.error_rates import cer, edit_distance, wer
    from glassformer.metrics.translation import Score, bleu, chrf, ter, tokenizer_for

_HOMES = {
    "METRICS": "corpus_metrics",
    "Comparison": "corpus_metrics",
    "Score": "translation",
    "bleu": "translation",
    "cer": "error_rates",
    "chrf": "translation",
    "corpus_scores": "corpus_metrics",
    "edit_distance": "error_rates",
    "paired_bootstrap": "corpus_metrics",
    "ter": "translation",
    "tokenizer_for": "translation",
    "wer": "error_rates",
}

__all__ = [
    "METRICS",
    "Comparison",
    "ForecastErrors",
    "LinearForecast",
    "Score",
    "TextLikelihood",
    "accuracy",
    "bits_per_character",
    "bleu",
    "cer",
    "chrf",
    "corpus_scores",
    "edit_distance",
    "exact_match",
    "forecast_errors",
    "paired_bootstrap",
    "perplexity",
    "repeat_last",
    "seasonal_naive",
    "sliding_likelihood",
    "ter",
    "tokenizer_for",
    "wer",
]

if not TYPE_CHECKING:  # where types are checked, a name that is not there is a fault
    __getattr__, __dir__ = lazy_attributes(__name__, _HOMES)
