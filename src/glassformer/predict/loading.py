"""``glassformer.load``: of a run what its task asks for."""

from importlib import import_module
from pathlib import Path
from typing import Any

from glassformer.config import CheckpointError, nearest
from glassformer.predict.opening import task_at

PREDICTORS = {
    "translation": "glassformer.translator.Translator",
    "language": "glassformer.predict.generator.Generator",
    "masked": "glassformer.predict.filler.Filler",
    "classification": "glassformer.predict.classifier.Classifier",
    "tagging": "glassformer.predict.tagger.Tagger",
    "images": "glassformer.predict.images.ImageClassifier",
    "forecasting": "glassformer.predict.forecaster.Forecaster",
}
"""Of each task the class that is imported when a run of it is loaded: the others take time and memory."""


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
    module, name = PREDICTORS[task].rsplit(".", 1)
    return getattr(import_module(module), name).load(*paths, device=device)
