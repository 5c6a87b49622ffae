"""Scores of a trained model on files that it has not seen: what ``glassformer evaluate`` tells."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from glassformer.config import DataError, nearest
from glassformer.data.image_files import read_images
from glassformer.data.images import ordered_images
from glassformer.data.labelled_config import LabelledConfig, TaggedConfig
from glassformer.data.labelled_files import read_labelled
from glassformer.data.masking import MaskedSequences
from glassformer.data.masking_config import MaskedConfig
from glassformer.data.stream import prepare_stream
from glassformer.data.stream_config import StreamConfig
from glassformer.data.tagged_files import read_tagged
from glassformer.evaluate.accuracy import accuracy
from glassformer.evaluate.likelihood import perplexity
from glassformer.predict.classifier import Classifier
from glassformer.predict.filler import Filler
from glassformer.predict.generator import Generator
from glassformer.predict.images import BATCH_SIZE, ImageClassifier
from glassformer.predict.tagger import Tagger


def language_scores(generator: Generator, config: StreamConfig, files: list[str], stride: int = 0) -> dict[str, float]:
    """Likelihood of the text of ``files`` as one stream, documents divided as ``config`` says, end tokens predicted
    too; characters and bytes are those of the text alone."""
    stream = prepare_stream(config, files, generator.tokenizer)
    found = generator.likelihood(stream.ids, stride)
    bits = found.nll / 0.6931471805599453
    return {
        "nll": found.nll_per_token,
        "perplexity": found.perplexity,
        "bits_per_character": bits / stream.characters,
        "bits_per_byte": bits / stream.bytes,
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
        logits, wanted = model.output_projection(model.transform(hidden)).float(), batch.wanted[batch.predicted]
        nll += cross_entropy(logits, wanted, reduction="sum").item()
        right += int((logits.argmax(-1) == wanted).sum())
        tokens += batch.target_tokens
    found = {"nll": nll / tokens, "perplexity": perplexity(nll, tokens), "accuracy": right / tokens}
    return {**found, "hidden_tokens": tokens}


def classification_scores(classifier: Classifier, config: LabelledConfig, files: list[str]) -> dict[str, float]:
    """Accuracy and macro-F1 on labelled texts; a record that holds no example is an error."""
    texts: list[Any] = []
    wanted: list[str] = []
    for path in files:
        for record in read_labelled(config, path):
            blank = record.fault is None and not all(text.strip() for text in record.texts)
            if record.fault or blank:
                raise DataError(f"{path}, line {record.line}: {record.fault or 'empty'}; mend or remove the line")
            _check(record.label, classifier.labels, f"{path}, line {record.line}: label")
            texts.append(record.texts if len(record.texts) > 1 else record.texts[0])
            wanted.append(record.label)
    _check_some(wanted, files, "labelled text")
    return label_scores([one.label for one in classifier.classify(texts)], wanted, "texts")


def tagging_scores(tagger: Tagger, config: TaggedConfig, files: list[str]) -> dict[str, float]:
    """Accuracy and macro-F1 over the words of tagged sentences."""
    sentences: list[list[str]] = []
    wanted: list[str] = []
    for path in files:
        for record in read_tagged(config, path):
            if record.fault:
                raise DataError(f"{path}, line {record.line}: {record.fault}; mend or remove the line")
            for tag in record.tags:
                _check(tag, tagger.tags, f"{path}, line {record.line}: tag")
            sentences.append(record.words)
            wanted += record.tags
    _check_some(wanted, files, "tagged word")
    found = [tag for tags in tagger.tag(sentences) for tag in tags]
    return label_scores(found, wanted, "words")


def image_scores(classifier: ImageClassifier, files: list[str]) -> dict[str, float]:
    """Accuracy and macro-F1 on labelled images, in any form that training reads."""
    format = classifier.format
    images = read_images(files, (format.height, format.width), format.channels).named(format.classes, files[0])
    found: list[str] = []
    wanted: list[str] = []
    for batch in ordered_images(images, format, BATCH_SIZE):
        found += [one.label for one in classifier.predictions(batch.images)]
        wanted += [format.classes[label] for label in batch.labels.tolist()]
    return label_scores(found, wanted, "images")


def label_scores(found: Sequence[str], wanted: Sequence[str], unit: str) -> dict[str, float]:
    """Accuracy, and the mean over the labels that occur of F1 = 2 · right / (told + there)."""
    rates = []
    for label in sorted({*found, *wanted}):
        right = sum(a == b == label for a, b in zip(found, wanted, strict=True))
        rates.append(2 * right / (sum(a == label for a in found) + sum(b == label for b in wanted)))
    return {"accuracy": accuracy(found, wanted), "macro_f1": sum(rates) / len(rates), unit: len(wanted)}


def _check(label: str, known: tuple[str, ...], where: str) -> None:
    if label not in known:
        raise DataError(f"{where} {label!r} does not occur in the training data; {nearest(label, list(known))}")


def _check_some(wanted: list[str], files: list[str], unit: str) -> None:
    if not wanted:
        raise DataError(f"{', '.join(files)}: holds no {unit}; give at least one")
