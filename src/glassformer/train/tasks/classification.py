"""Naming the class of a text (Devlin et al. 2019, section 4.1), from scratch or from a pre-trained encoder."""

from functools import cached_property, partial
from typing import Any, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor

from glassformer.data.account import Account
from glassformer.data.labelled import LabelledBatch, LabelledBatches, labelled_texts, prepare_labelled
from glassformer.data.labelled_config import LabelledConfig
from glassformer.models.bert import BERT, BERTConfig
from glassformer.text import TextConfig
from glassformer.train.config import AccuracyValidation, PlainTrainConfig, RunConfig
from glassformer.train.loss import Loss, cross_entropy
from glassformer.train.task import Document, Origin
from glassformer.train.tasks.naming import naming_scores
from glassformer.train.tasks.vocabulary import MARKS, check_length, one_vocabulary, with_vocabulary


class ClassificationRun(RunConfig):
    """Everything one training of a classifier of texts depends on."""

    task: Literal["classification"] = "classification"
    model: BERTConfig = BERTConfig(masked_tokens=False)
    text: TextConfig = TextConfig()
    data: LabelledConfig
    train: PlainTrainConfig = PlainTrainConfig()
    validation: AccuracyValidation = AccuracyValidation()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_length(self.data.max_length, self.model.max_length)
        return self


class Classification:
    """Labelled texts read, accounted for and batched by length."""

    unit = "texts"

    def __init__(self, config: ClassificationRun, origin: Origin | None = None):
        self.config, data = config, config.data
        self.tokenizers = one_vocabulary(config.text, partial(labelled_texts, data), origin, MARKS)
        tokenizer = self.tokenizers.source
        examples = prepare_labelled(data, data.train, tokenizer)
        examples.account.check_unknown(config.text)
        self.labels = examples.labels
        self._held_out = None
        if data.validation:
            held_out = prepare_labelled(data, data.validation, tokenizer, self.labels)
            self._held_out = LabelledBatches(held_out, tokenizer, data, seed=0)
        self.accounts: list[Account] = [examples.account]
        self.batches = LabelledBatches(examples, tokenizer, data, config.train.seed)

    @property
    def limit(self) -> str:
        return f"data.batch_tokens={self.config.data.batch_tokens}"

    @property
    def validates(self) -> bool:
        return self._held_out is not None

    def new_model(self) -> BERT:
        return BERT(self._model_config)

    def loss(self, model: BERT, batch: LabelledBatch) -> Loss:
        return cross_entropy(self._logits(model, batch), batch.labels, self.config.train.label_smoothing)

    @torch.inference_mode()
    def validate(self, model: BERT) -> dict[str, float]:
        assert self._held_out is not None
        batches = (batch.to(model.embedding.weight.device) for batch in self._held_out.whole_epoch())
        return naming_scores((self._logits(model, batch), batch.labels) for batch in batches)

    def document(self) -> Document:
        values = {
            "labels": list(self.labels),
            "max_length": self.config.data.max_length,
            "tokenizer": self.tokenizers.fingerprint,
        }
        return Document(values, self.tokenizers.to_json())

    def texts(self, batch: LabelledBatch) -> list[Any]:
        decode = self.tokenizers.source.decode
        pairs = zip(batch.tokens.tolist(), batch.labels.tolist(), strict=True)
        return [[decode(row), self.labels[label]] for row, label in pairs]

    @cached_property
    def _model_config(self) -> BERTConfig:
        values = with_vocabulary(self.config.model.model_dump(), self.tokenizers)
        return BERTConfig.parse({**values, "n_classes": len(self.labels)}, "model")

    @staticmethod
    def _logits(model: BERT, batch: LabelledBatch) -> Tensor:
        assert model.classes is not None
        return model.classes(model.hidden(batch.tokens, batch.mask, batch.segments))
