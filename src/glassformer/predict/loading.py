"""``glassformer.load``: of a run what its task asks for."""

from pathlib import Path
from typing import Any

from glassformer.config import CheckpointError, nearest
from glassformer.predict.classifier import Classifier
from glassformer.predict.filler import Filler
from glassformer.predict.forecaster import Forecaster
from glassformer.predict.generator import Generator
from glassformer.predict.images import ImageClassifier
from glassformer.predict.opening import task_at
from glassformer.predict.tagger import Tagger
from glassformer.translator import Translator

Predictor = Translator | Generator | Filler | Classifier | Tagger | ImageClassifier | Forecaster

PREDICTORS: dict[str, type[Predictor]] = {
    "translation": Translator,
    "language": Generator,
    "masked": Filler,
    "classification": Classifier,
    "tagging": Tagger,
    "images": ImageClassifier,
    "forecasting": Forecaster,
}


def load(*paths: str | Path, device: str = "cpu") -> Any:
    """``glassformer.load("runs/x").translate(["A dog runs."])``, or ``.generate``, ``.fill``, ``.classify``, ``.tag``,
    ``.forecast``, as the run's task is; several runs of a translator make an ensemble."""
    if not paths:
        raise CheckpointError("no checkpoint is named; name at least one")
    task = task_at(paths[0])
    if task not in PREDICTORS:
        raise CheckpointError(f"{paths[0]}: task={task!r} is not a task; {nearest(task, list(PREDICTORS))}")
    if len(paths) > 1 and task != "translation":
        raise CheckpointError(f"{paths[0]}: is a run of task={task}, and only translators make an ensemble; name one")
    return Translator.load(*paths, device=device) if len(paths) > 1 else PREDICTORS[task].load(paths[0], device=device)
