"""Trained models in use: one class for each task, from text, pictures or tables to text, labels or numbers.

Each is imported at first use, so that translating does not wait for the code that reads pictures.
"""

from typing import TYPE_CHECKING

from glassformer.lazy_imports import lazy_attributes

if TYPE_CHECKING:
    from glassformer.predict.encoder import Encoder
    from glassformer.predict.filler import Candidate, Filled, Filler
    from glassformer.predict.forecaster import Forecast, Forecaster
    from glassformer.predict.generator import Generated, Generator
    from glassformer.predict.images import ImageClassifier
    from glassformer.predict.labeling import Classifier, Tagger
    from glassformer.predict.loading import load
    from glassformer.predict.predictor import Prediction

_HOMES = {
    "Candidate": "filler",
    "Classifier": "labeling",
    "Encoder": "encoder",
    "Filled": "filler",
    "Filler": "filler",
    "Forecast": "forecaster",
    "Forecaster": "forecaster",
    "Generated": "generator",
    "Generator": "generator",
    "ImageClassifier": "images",
    "Prediction": "predictor",
    "Tagger": "labeling",
    "load": "loading",
}

__all__ = [
    "Candidate",
    "Classifier",
    "Encoder",
    "Filled",
    "Filler",
    "Forecast",
    "Forecaster",
    "Generated",
    "Generator",
    "ImageClassifier",
    "Prediction",
    "Tagger",
    "load",
]

if not TYPE_CHECKING:  # where types are checked, a name that is not there is a fault
    __getattr__, __dir__ = lazy_attributes(__name__, _HOMES)
