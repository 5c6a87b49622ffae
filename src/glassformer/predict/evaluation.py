"""Scores of a trained model on files that it has not seen: what ``glassformer evaluate`` tells."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.functional import cross_entropy

from glassformer.data.classification_config import LabeledConfig, TaggedConfig
from glassformer.data.image_files import read_images
from glassformer.data.images import ordered_images
from glassformer.data.masking import MaskedSequences
from glassformer.data.masking_config import MaskedConfig
from glassformer.data.text_classification_files import read_labeled
from glassformer.data.token_classification_files import read_tagged
from glassformer.data.token_stream import prepare_stream
from glassformer.data.token_stream_config import StreamConfig
from glassformer.errors import DataError, nearest
from glassformer.evaluate.class_report import Confusion
from glassformer.evaluate.likelihood import bits, perplexity
from glassformer.predict.classifier import Classifier
from glassformer.predict.filler import Filler
from glassformer.predict.generator import Generator
from glassformer.predict.images import BATCH_SIZE, ImageClassifier
from glassformer.predict.tagger import Tagger


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
    """How well hidden tokens are told; which ones are hidden is drawn from seed 0, as in validation."""
    model, nll, right, tokens = filler.model, 0.0, 0, 0
    assert model.transform is not None and model.output_projection is not None
    config = config.model_copy(update={"max_length": min(config.max_length, filler.max_length)})
    stream = prepare_stream(config, files, filler.tokenizer)
    for batch in MaskedSequences([stream], filler.tokenizer, config, seed=0).whole_epoch():
        batch = batch.to(filler.device)
        hidden = model.hidden(batch.tokens, batch.mask, batch.segments)[batch.predicted]
        logits, labels = model.output_projection(model.transform(hidden)).float(), batch.labels[batch.predicted]
        nll += cross_entropy(logits, labels, reduction="sum").item()
        right += int((logits.argmax(-1) == labels).sum())
        tokens += batch.n_targets
    found = {"nll": nll / tokens, "perplexity": perplexity(nll, tokens), "accuracy": right / tokens}
    return {**found, "hidden_tokens": tokens}


def classification_scores(classifier: Classifier, config: LabeledConfig, files: list[str]) -> dict[str, float]:
    """Accuracy and macro-F1 on labeled texts; an invalid record is an error."""
    return label_scores(*classified(classifier, config, files), "texts")


def classified(classifier: Classifier, config: LabeledConfig, files: list[str]) -> Labels:
    """Predicted and true label of every text; an invalid record is an error."""
    texts: list[Any] = []
    true: list[str] = []
    for path in files:
        for record in read_labeled(config, path):
            blank = record.fault is None and not all(text.strip() for text in record.texts)
            if record.fault or blank:
                raise DataError(f"{path}, line {record.line}: {record.fault or 'empty'}; correct or remove the line")
            _check(record.label, classifier.labels, f"{path}, line {record.line}: label")
            texts.append(record.texts if len(record.texts) > 1 else record.texts[0])
            true.append(record.label)
    _check_some(true, files, "labeled text")
    return Labels([one.label for one in classifier.classify(texts)], true)


def tagging_scores(tagger: Tagger, config: TaggedConfig, files: list[str]) -> dict[str, float]:
    """Accuracy and macro-F1 over the words of tagged sentences."""
    return label_scores(*of_words(tagged(tagger, config, files)), "words")


def tagged(tagger: Tagger, config: TaggedConfig, files: list[str]) -> TaggedSentences:
    """Predicted and true tags of every sentence."""
    sentences: list[list[str]] = []
    true: list[list[str]] = []
    for path in files:
        for record in read_tagged(config, path):
            if record.fault:
                raise DataError(f"{path}, line {record.line}: {record.fault}; correct or remove the line")
            for tag in record.tags:
                _check(tag, tagger.tags, f"{path}, line {record.line}: tag")
            sentences.append(record.words)
            true.append(record.tags)
    _check_some([tag for tags in true for tag in tags], files, "tagged word")
    return TaggedSentences(tagger.tag(sentences), true)


def of_words(sentences: TaggedSentences) -> Labels:
    """Tags of all sentences, concatenated."""
    predicted, true = ([tag for tags in side for tag in tags] for side in sentences)
    return Labels(predicted, true)


def image_scores(classifier: ImageClassifier, files: list[str]) -> dict[str, float]:
    """Accuracy and macro-F1 on labeled images, in any form that training reads."""
    return label_scores(*classified_images(classifier, files), "images")


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


def label_scores(predicted: Sequence[str], true: Sequence[str], unit: str) -> dict[str, float]:
    """Accuracy, macro-F1 over the labels that occur, and the number of examples under the name ``unit``."""
    confusion = Confusion.of(predicted, true)
    macro = confusion.report().averages["macro"]
    return {"accuracy": confusion.accuracy, "macro_f1": macro.f1, unit: len(true)}


def _check(label: str, known: tuple[str, ...], where: str) -> None:
    if label not in known:
        raise DataError(f"{where} {label!r} does not occur in the training data; {nearest(label, list(known))}")


def _check_some(examples: list[str], files: list[str], unit: str) -> None:
    if not examples:
        raise DataError(f"{', '.join(files)}: contains no {unit}; provide at least one")
