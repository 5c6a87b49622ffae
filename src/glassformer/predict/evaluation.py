"""Evaluation of a trained model on files that it has not seen, for ``glassformer evaluate``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch.nn.functional import cross_entropy

from glassformer.config import Config
from glassformer.data.config import LabeledConfig, MaskedConfig, StreamConfig, TaggedConfig
from glassformer.data.held_out import unknown_class
from glassformer.data.image_files import read_images
from glassformer.data.images import ordered_images
from glassformer.data.masking import masked_batches
from glassformer.data.text_classification import read_labeled
from glassformer.data.time_series import prepare_series
from glassformer.data.token_classification import read_tagged
from glassformer.data.token_stream import prepare_stream
from glassformer.errors import ConfigError, DataError
from glassformer.metrics.class_report import ClassReport, Confusion, mark_spans, span_report
from glassformer.metrics.likelihood import bits, perplexity
from glassformer.predict.filler import Filler
from glassformer.predict.forecaster import Forecaster
from glassformer.predict.generator import Generator
from glassformer.predict.images import BATCH_SIZE, ImageClassifier
from glassformer.predict.labeling import Classifier, Tagger
from glassformer.storage.regular_files import MAX_LINE_BYTES
from glassformer.tasks import TASKS

C = TypeVar("C", bound=Config)


@dataclass(frozen=True)
class EvaluationFiles:
    """Files to evaluate ``run`` on; without any, those of its ``data.test``.

    ``settings`` reads the data section of its training, None if that is unknown.
    """

    run: str
    files: list[str]
    settings: Callable[[], Any] = lambda: None
    stride: int = 0
    max_line_bytes: int = MAX_LINE_BYTES

    @property
    def named(self) -> list[str]:
        """The files; ``DataError`` if there are none."""
        files = self.files or list(getattr(self.settings(), "test", []))
        if not files:
            raise DataError(f"no file is named; give one like those that {self.run} was trained on")
        return files

    def config(self, kind: type[C]) -> C:
        """Data settings of training (columns, keys, documents) for these files, with defaults for unknown ones."""
        settings = self.settings()
        values = {} if settings is None else settings.model_dump()
        unseen: dict[str, Any] = {"train": self.named, "validation": [], "test": [], "weights": []}
        unseen["validation_share"] = 0.0
        if self.max_line_bytes != MAX_LINE_BYTES:  # else the value from training
            unseen["max_line_bytes"] = self.max_line_bytes
        fields = kind.model_fields
        return kind.parse({name: value for name, value in (values | unseen).items() if name in fields}, "files")


@dataclass(frozen=True)
class ClassEvaluation:
    """Evaluation of a classifier or tagger: the confusion of its classes, and its span scores."""

    confusion: Confusion
    unit: str
    spans: ClassReport | None = None

    @property
    def scores(self) -> dict[str, float]:
        macro = self.confusion.report().averages["macro"].f1
        return {"accuracy": self.confusion.accuracy, "macro_f1": macro, self.unit: int(self.confusion.counts.sum())}

    def as_json(self) -> dict[str, Any]:
        by_class = {**self.scores, **self.confusion.report().as_json(), "confusion": self.confusion.as_json()}
        return by_class if self.spans is None else {**by_class, "spans": self.spans.as_json()}


def evaluate_language(load: Callable[[], Generator], data: EvaluationFiles) -> dict[str, float]:
    config = data.config(StreamConfig)
    return language_scores(load(), config, data.named, data.stride)


def evaluate_masked(load: Callable[[], Filler], data: EvaluationFiles) -> dict[str, float]:
    config = data.config(MaskedConfig)
    return masked_scores(load(), config, data.named)


def evaluate_classification(load: Callable[[], Classifier], data: EvaluationFiles) -> ClassEvaluation:
    config = data.config(LabeledConfig)
    classifier = load()
    labels = classified(classifier, config, data.named)
    return ClassEvaluation(Confusion.of(*labels, classifier.labels), TASKS["classification"].unit)


def evaluate_tagging(load: Callable[[], Tagger], data: EvaluationFiles) -> ClassEvaluation:
    """Evaluate a tagger, with scores of spans if the tags mark spans (``B-PER``)."""
    config = data.config(TaggedConfig)
    tagger = load()
    sentences = tagged(tagger, config, data.named)
    spans = span_report(*sentences) if mark_spans(tagger.tags) else None
    return ClassEvaluation(Confusion.of(*of_words(sentences), tagger.tags), TASKS["tagging"].unit, spans)


def evaluate_images(load: Callable[[], ImageClassifier], data: EvaluationFiles) -> ClassEvaluation:
    files = data.named
    classifier = load()
    labels = classified_images(classifier, files)
    return ClassEvaluation(Confusion.of(*labels, classifier.format.classes), TASKS["images"].unit)


def evaluate_forecasting(load: Callable[[], Forecaster], data: EvaluationFiles) -> dict[str, float]:
    """Evaluate a forecaster on a table, or on the test part of the series that it was trained on."""
    if len(data.files) > 1:
        raise DataError(f"{len(data.files)} tables are named; a forecaster is measured on one; name that")
    settings, forecaster = data.settings(), load()
    if data.files:
        known = settings is not None and not settings.date
        errors = forecaster.errors_in_file(
            data.files[0],
            "" if known else None,
            settings.missing if settings is not None else "refuse",
            data.max_line_bytes,
        )
    elif settings is None:
        raise ConfigError(f"{data.run}: is a checkpoint without its run's config.toml; name a table to measure it on")
    else:
        series = prepare_series(settings)
        if not len(series.windows("test")):
            raise ConfigError(f"{data.run}: its data.split leaves no rows for a test; name a table to measure it on")
        errors = forecaster.errors(series)
    return {"mse": errors.mse, "mae": errors.mae, "windows": errors.windows}


class Labels(NamedTuple):
    """Predicted and true label of every example, in order."""

    predicted: list[str]
    true: list[str]


class TaggedSentences(NamedTuple):
    """Predicted and true tags of every sentence, one per word, in order."""

    predicted: list[list[str]]
    true: list[list[str]]


def language_scores(generator: Generator, config: StreamConfig, files: list[str], stride: int = 0) -> dict[str, float]:
    """Likelihood of the text of ``files`` as one stream, with documents split by ``config``.

    End tokens are predicted too. Characters and bytes are those of the text that the predicted tokens decode to.
    """
    stream = prepare_stream(config, files, generator.tokenizer)
    found = generator.likelihood(stream.ids, stride)
    return {
        "nll": found.nll_per_token,
        "perplexity": found.perplexity,
        **bits(found.nll, generator.tokenizer.size(stream.ids, given=1)),
        "tokens": found.tokens,
    }


@torch.inference_mode()
def masked_scores(filler: Filler, config: MaskedConfig, files: list[str]) -> dict[str, float]:
    """Scores of predicted masked tokens; the masks are drawn with seed 0, as in validation."""
    model, nll, right, tokens = filler.model, 0.0, 0, 0
    assert model.transform is not None and model.output_projection is not None
    config = config.model_copy(update={"max_length": min(config.max_length, filler.max_length)})
    stream = prepare_stream(config, files, filler.tokenizer)
    for batch in masked_batches([stream], filler.tokenizer, config, seed=0).whole_epoch():
        batch = batch.to(filler.device)
        hidden = model.hidden(batch.tokens, batch.mask, batch.segments)[batch.predicted]
        logits, labels = model.output_projection(model.transform(hidden)).float(), batch.labels[batch.predicted]
        nll += cross_entropy(logits, labels, reduction="sum").item()
        right += int((logits.argmax(-1) == labels).sum())
        tokens += batch.n_targets
    found = {"nll": nll / tokens, "perplexity": perplexity(nll, tokens), "accuracy": right / tokens}
    return {**found, "hidden_tokens": tokens}


def classified(classifier: Classifier, config: LabeledConfig, files: list[str]) -> Labels:
    """Predicted and true label of every text; an invalid record is an error."""
    texts: list[Any] = []
    true: list[str] = []
    for path in files:
        for line, (parts, label), fault in read_labeled(config, path):
            blank = fault is None and not all(text.strip() for text in parts)
            if fault or blank:
                raise DataError(f"{path}, line {line}: {fault or 'empty'}; correct or remove the line")
            _check(label, classifier.labels, f"{path}, line {line}: label")
            texts.append(parts if len(parts) > 1 else parts[0])
            true.append(label)
    _check_some(true, files, "labeled text")
    return Labels([one.label for one in classifier.classify(texts)], true)


def tagged(tagger: Tagger, config: TaggedConfig, files: list[str]) -> TaggedSentences:
    """Predicted and true tags of every sentence."""
    sentences: list[list[str]] = []
    true: list[list[str]] = []
    for path in files:
        for line, value, fault in read_tagged(config, path):
            if fault:
                raise DataError(f"{path}, line {line}: {fault}; correct or remove the line")
            for tag in value.tags:
                _check(tag, tagger.tags, f"{path}, line {line}: tag")
            sentences.append(value.words)
            true.append(value.tags)
    _check_some([tag for tags in true for tag in tags], files, "tagged word")
    return TaggedSentences(tagger.tag(sentences), true)


def of_words(sentences: TaggedSentences) -> Labels:
    """Tags of all sentences, concatenated."""
    predicted, true = ([tag for tags in side for tag in tags] for side in sentences)
    return Labels(predicted, true)


def classified_images(classifier: ImageClassifier, files: list[str]) -> Labels:
    """Predicted and true class of every image."""
    format = classifier.format
    images = read_images(files, (format.height, format.width), format.channels).named(format.classes, files[0])
    predicted: list[str] = []
    true: list[str] = []
    for batch in ordered_images(images, format, BATCH_SIZE):
        predicted += [one.label for one in classifier.predictions(batch.images)]
        true += [format.classes[label] for label in batch.labels.tolist()]
    return Labels(predicted, true)


def _check(label: str, known: tuple[str, ...], where: str) -> None:
    if label not in known:
        raise unknown_class(where, label, known)


def _check_some(examples: list[str], files: list[str], unit: str) -> None:
    if not examples:
        raise DataError(f"{', '.join(files)}: contains no {unit}; provide at least one")
