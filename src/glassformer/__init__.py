"""glassformer, the Transformer you can see through: train one on your own text, use it, look at every number in it.

The public names are imported when first used, so that importing the package costs nothing.
"""

from typing import TYPE_CHECKING

from glassformer.later import imported_later

if TYPE_CHECKING:
    from glassformer.config import CheckpointError, ConfigError, DataError, GlassformerError
    from glassformer.explain import Example, Trace, examine, trace
    from glassformer.predict import Classifier, Encoder, Filler, Forecaster, Generator, ImageClassifier, Tagger, load
    from glassformer.taps import tap, tracing
    from glassformer.train import parse_config, read_config
    from glassformer.translator import CrossAttention, Translation, Translator

__version__ = "0.1.0"

_HOMES = {
    "CheckpointError": "config",
    "Classifier": "predict",
    "ConfigError": "config",
    "CrossAttention": "translator",
    "DataError": "config",
    "Encoder": "predict",
    "Example": "explain",
    "Filler": "predict",
    "Forecaster": "predict",
    "Generator": "predict",
    "GlassformerError": "config",
    "ImageClassifier": "predict",
    "Tagger": "predict",
    "Trace": "explain",
    "Translation": "translator",
    "Translator": "translator",
    "examine": "explain",
    "load": "predict",
    "parse_config": "train",
    "read_config": "train",
    "tap": "taps",
    "trace": "explain",
    "tracing": "taps",
}

__all__ = [
    "CheckpointError",
    "Classifier",
    "ConfigError",
    "CrossAttention",
    "DataError",
    "Encoder",
    "Example",
    "Filler",
    "Forecaster",
    "Generator",
    "GlassformerError",
    "ImageClassifier",
    "Tagger",
    "Trace",
    "Translation",
    "Translator",
    "examine",
    "load",
    "parse_config",
    "read_config",
    "tap",
    "trace",
    "tracing",
]

if not TYPE_CHECKING:  # where types are checked, a name that is not there is a fault
    __getattr__, __dir__ = imported_later(__name__, _HOMES)
