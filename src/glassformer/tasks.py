"""The table of tasks: for each of them its models, commands, and the code that trains, uses, explains and converts it.

Code is named as ``module:attribute`` and imported when it is used: importing all of it would take seconds. A test
resolves every name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class TaskRecord:
    """One task. Code that does not exist for it is an empty string."""

    commands: tuple[str, ...]
    """Commands that use a trained run; messages recommend the first."""
    predictor: str
    """Class that ``glassformer.load`` returns."""
    training: str = ""
    """Class of data, loss and scores (``train.task.Task``)."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Configuration of a training, by ``model.kind``."""
    example: str = ""
    """Function that traces one example of a run: (run, input) → Example."""
    samples: str = ""
    """Class of its samples in shards (``data.shards``)."""
    conversion: str = ""
    """Conversion from and to models of Hugging Face."""
    evaluation: str = ""
    """Function that evaluates a run: (loader, files) → scores. Translation has corpus metrics instead."""
    unit: str = ""
    """Unit of the inputs of a classifier, such as texts; empty if the task predicts no classes."""
    pairs: bool = False
    """True if an example may have a second text."""
    predicts: str = ""
    """Output of the model, in words, as the drawing of a model shows it."""
    framed: bool = False
    """True if texts stand between [CLS] and [SEP]."""
    planned_batch: str = ""
    """Function that gives the shape of a batch without data: (data settings, model settings, length) → BatchShape."""
    size_from_data: str = ""
    """Setting of the model that the data decide, besides the size of the vocabulary."""


TASKS = {
    "translation": TaskRecord(
        commands=("translate", "score", "align", "tokenize"),
        predictor="glassformer.predict.translator:Translator",
        training="glassformer.train.tasks.translation:TranslationTask",
        samples="glassformer.data.shards.pair_samples:PairSamples",
        settings={
            "encoder_decoder": "glassformer.train.tasks.translation:TranslationRun",
            "recurrent": "glassformer.train.tasks.translation:RecurrentRun",
        },
        example="glassformer.explain.examples.text:examine_translation",
        conversion="glassformer.interop.tasks.translation:TRANSLATION",
        pairs=True,
        predicts="next-token distribution",
        planned_batch="glassformer.planning.batch:translation_batch",
    ),
    "language": TaskRecord(
        commands=("generate", "tokenize"),
        predictor="glassformer.predict.generator:Generator",
        training="glassformer.train.tasks.language:LanguageModeling",
        samples="glassformer.data.shards.document_samples:StreamSamples",
        settings={"gpt": "glassformer.train.tasks.language:LanguageRun"},
        evaluation="glassformer.predict.evaluation:evaluate_language",
        example="glassformer.explain.examples.text:examine_language",
        conversion="glassformer.interop.tasks.language:LANGUAGE",
        predicts="next-token distribution",
        planned_batch="glassformer.planning.batch:window_batch",
    ),
    "embedding": TaskRecord(
        commands=("embed",),
        predictor="glassformer.predict.encoder:Encoder",
        conversion="glassformer.interop.tasks.encoder:EMBEDDING",
    ),
    "masked": TaskRecord(
        commands=("fill", "embed", "tokenize"),
        predictor="glassformer.predict.filler:Filler",
        training="glassformer.train.tasks.masked:MaskedModeling",
        samples="glassformer.data.shards.document_samples:MaskedSamples",
        settings={"bert": "glassformer.train.tasks.masked:MaskedRun"},
        evaluation="glassformer.predict.evaluation:evaluate_masked",
        example="glassformer.explain.examples.text:examine_masked_text",
        conversion="glassformer.interop.tasks.encoder:MASKED",
        predicts="a hidden word",
        framed=True,
        planned_batch="glassformer.planning.batch:masked_batch",
    ),
    "classification": TaskRecord(
        commands=("classify", "embed", "tokenize"),
        predictor="glassformer.predict.labeling:Classifier",
        training="glassformer.train.tasks.labeling:Classification",
        samples="glassformer.data.shards.labeled_samples:LabeledSamples",
        settings={"bert": "glassformer.train.tasks.labeling:ClassificationRun"},
        evaluation="glassformer.predict.evaluation:evaluate_classification",
        example="glassformer.explain.examples.text:examine_classification",
        conversion="glassformer.interop.tasks.encoder:CLASSIFICATION",
        unit="texts",
        pairs=True,
        predicts="a class",
        framed=True,
        planned_batch="glassformer.planning.batch:labeled_batch",
        size_from_data="n_classes",
    ),
    "tagging": TaskRecord(
        commands=("tag", "embed", "tokenize"),
        predictor="glassformer.predict.labeling:Tagger",
        training="glassformer.train.tasks.labeling:Tagging",
        samples="glassformer.data.shards.labeled_samples:TaggedSamples",
        settings={"bert": "glassformer.train.tasks.labeling:TaggingRun"},
        evaluation="glassformer.predict.evaluation:evaluate_tagging",
        example="glassformer.explain.examples.text:examine_tagging",
        conversion="glassformer.interop.tasks.encoder:TAGGING",
        unit="words",
        predicts="a tag for each word",
        framed=True,
        planned_batch="glassformer.planning.batch:tagged_batch",
        size_from_data="n_tags",
    ),
    "images": TaskRecord(
        commands=("classify",),
        predictor="glassformer.predict.images:ImageClassifier",
        training="glassformer.train.tasks.images:ImageClassification",
        settings={"vit": "glassformer.train.tasks.images:ImageRun"},
        evaluation="glassformer.predict.evaluation:evaluate_images",
        example="glassformer.explain.examples.arrays:examine_image_file",
        conversion="glassformer.interop.tasks.images:IMAGES",
        unit="images",
        predicts="a class",
        planned_batch="glassformer.planning.batch:image_batch",
        size_from_data="n_classes",
    ),
    "forecasting": TaskRecord(
        commands=("forecast",),
        predictor="glassformer.predict.forecaster:Forecaster",
        training="glassformer.train.tasks.forecasting:Forecasting",
        settings={"series": "glassformer.train.tasks.forecasting:ForecastingRun"},
        evaluation="glassformer.predict.evaluation:evaluate_forecasting",
        example="glassformer.explain.examples.arrays:examine_table",
        predicts="the steps to come",
        planned_batch="glassformer.planning.batch:series_batch",
        size_from_data="n_variables",
    ),
}

DEFAULT_TASKS = {kind: name for name, record in reversed(TASKS.items()) for kind in record.settings}
"""The task of a model of each kind where a configuration or checkpoint names none: the first that trains it."""


def tasks_with(command: str) -> tuple[str, ...]:
    """Tasks that a command accepts runs of; empty if the command takes no run of a task."""
    return tuple(name for name, record in TASKS.items() if command in record.commands)


def resolve_name(name: str) -> Any:
    """Import what ``module:attribute`` names."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
