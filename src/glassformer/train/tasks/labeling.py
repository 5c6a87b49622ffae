"""Classes of texts and tags of words (Devlin et al. 2019, sections 4.1 and 5.3), with or without pre-training."""

from typing import Any, Literal, Self

import torch
from pydantic import model_validator

from glassformer.data.config import LabeledConfig, TaggedConfig
from glassformer.data.shards.labeled_samples import LabeledSamples, TaggedSamples
from glassformer.data.shards.shard_batches import labeled_shards, tagged_shards
from glassformer.data.text_classification import LabeledBatch, labeled_batches, labeled_texts, prepare_labeled
from glassformer.data.token_classification import TaggedBatch, prepare_tagged, tagged_batches, tagged_texts
from glassformer.models.bert import BERT, BERTConfig
from glassformer.text import TextConfig
from glassformer.train.config import AccuracyValidation, PlainTrainConfig, RunConfig
from glassformer.train.loss import indices_of
from glassformer.train.tasks.encoder import ClassificationTask, Labeled, LabelingConfig, Readers
from glassformer.train.tasks.vocabulary import check_length, check_no_dropout


class LabelingRun(RunConfig):
    """Settings that classifiers and taggers share; ``model.masked_tokens`` is false by default."""

    model: LabelingConfig = BERTConfig(masked_tokens=False)
    text: TextConfig = TextConfig()
    data: LabeledConfig | TaggedConfig
    train: PlainTrainConfig = PlainTrainConfig()
    validation: AccuracyValidation = AccuracyValidation()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_length("data.max_length", self.data.max_length, self.model.max_length)
        check_no_dropout(self.text)
        return self


class ClassificationRun(LabelingRun):
    """Configuration of text classification; ``model.masked_tokens`` is false by default."""

    task: Literal["classification"] = "classification"
    data: LabeledConfig


class Classification(ClassificationTask):
    """Labeled texts read, accounted for and batched by length."""

    unit = "texts"
    head, stored = "n_classes", "labels"
    reading = Readers(labeled_texts, prepare_labeled, labeled_batches, LabeledSamples, labeled_shards)

    def texts(self, batch: LabeledBatch) -> list[Any]:
        labels = [self.names[label] for label in batch.labels.tolist()]
        return [list(pair) for pair in zip(super().texts(batch), labels, strict=True)]

    def _labeled(self, model: BERT, batch: LabeledBatch) -> Labeled:
        assert model.classes is not None
        rows, length = batch.tokens.shape
        first = torch.arange(0, rows * length, length, device=batch.tokens.device)
        hidden = model.hidden(batch.tokens, batch.mask, batch.segments, first)
        return model.classes(hidden[:, None]), batch.labels


class TaggingRun(LabelingRun):
    """Configuration of token classification; ``model.masked_tokens`` is false by default."""

    task: Literal["tagging"] = "tagging"
    data: TaggedConfig


class Tagging(ClassificationTask):
    """Tagged sentences read, accounted for and batched by length; the tag stands on the first piece of a word."""

    unit = "words"
    head, stored = "n_tags", "tags"
    reading = Readers(tagged_texts, prepare_tagged, tagged_batches, TaggedSamples, tagged_shards)

    def _labeled(self, model: BERT, batch: TaggedBatch) -> Labeled:
        assert model.tags is not None
        words = indices_of(batch.word_starts, batch.n_targets)
        hidden = model.hidden(batch.tokens, batch.mask, batch.segments, words)
        return model.tags(hidden[None])[0], batch.tags.flatten()[words]
