"""``glassformer.load``: of a run what its task asks for."""

from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError, nearest
from glassformer.lazy_imports import lazy_attributes
from glassformer.predict.opening import task_at

PREDICTORS = {
    "translation": "Translator",
    "language": "Generator",
    "masked": "Filler",
    "embedding": "Encoder",
    "classification": "Classifier",
    "tagging": "Tagger",
    "images": "ImageClassifier",
    "forecasting": "Forecaster",
}
"""Of each task the class; imported when a run of it is loaded, since the others would take time and memory."""

_class, _ = lazy_attributes(
    "glassformer",
    {
        "Translator": "translator",
        "Generator": "predict.generator",
        "Filler": "predict.filler",
        "Encoder": "predict.encoder",
        "Classifier": "predict.classifier",
        "Tagger": "predict.tagger",
        "ImageClassifier": "predict.images",
        "Forecaster": "predict.forecaster",
    },
)


def load(*paths: str | Path, device: str = "cpu") -> Any:
    """Load a run: ``glassformer.load("runs/x").translate(["A dog runs."])``.

    The task of the run decides the class, and so the method: ``translate``, ``generate``, ``fill``, ``embed``,
    ``classify``, ``tag`` or ``forecast``. Several runs of translators make an ensemble. ``device``: cpu, cuda, or auto,
    a GPU if there is one.
    """
    if not paths:
        raise CheckpointError("no checkpoint is named; name at least one")
    task = task_at(paths[0])
    if task not in PREDICTORS:
        raise CheckpointError(f"{paths[0]}: task={task!r} is not a task; {nearest(task, list(PREDICTORS))}")
    if len(paths) > 1 and task != "translation":
        raise CheckpointError(
            f"{paths[0]}: is a run of task={task}, but only translators form an ensemble; name one checkpoint"
        )
    return _class(PREDICTORS[task]).load(*paths, device=device)
