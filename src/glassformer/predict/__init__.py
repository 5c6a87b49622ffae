"""Using a trained model: what goes in and comes out is text, labels, pictures, tables; one class for each task."""

from glassformer.predict.classifier import Classifier
from glassformer.predict.filler import Candidate, Filled, Filler
from glassformer.predict.forecaster import Forecast, Forecaster
from glassformer.predict.generator import Generated, Generator
from glassformer.predict.images import ImageClassifier
from glassformer.predict.loading import PREDICTORS, Predictor, load
from glassformer.predict.prediction import Prediction
from glassformer.predict.tagger import Tagger

__all__ = [
    "PREDICTORS",
    "Candidate",
    "Classifier",
    "Filled",
    "Filler",
    "Forecast",
    "Forecaster",
    "Generated",
    "Generator",
    "ImageClassifier",
    "Prediction",
    "Predictor",
    "Tagger",
    "load",
]
