"""Naming the class of a text (Devlin et al. 2019, section 4.1), from scratch or from a pre-trained encoder."""

from functools import cached_property, partial
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator

from glassformer.data.account import Account
from glassformer.data.labelled import LabelledBatch, LabelledBatches, labelled_texts, prepare_labelled
from glassformer.data.labelled_config import LabelledConfig
from glassformer.models.bert import BERT, BERTConfig
from glassformer.text import TextConfig
from glassformer.train.config import RunConfig, TrainConfig, ValidationConfig
from glassformer.train.loss import Loss, cross_entropy
from glassformer.train.task import Document, Origin
from glassformer.train.tasks.vocabulary import MARKS, one_vocabulary, with_vocabulary


class ClassificationTrainConfig(TrainConfig):
    """How long and how carefully. Steps are absolute: a resumed run ends where an uninterrupted one would."""

    label_smoothing: float = Field(0.0, ge=0, lt=1, description="share of the probability given to all classes")


class ClassificationValidation(ValidationConfig):
    """How many validation examples are named rightly."""

    metric: Literal["accuracy", "loss"] = "accuracy"
    """Chooses the best checkpoint and stops the run."""


class ClassificationRun(RunConfig):
    """Everything one training of a classifier of texts depends on."""

    task: Literal["classification"] = "classification"
    model: BERTConfig = BERTConfig(masked_tokens=False)
    text: TextConfig = TextConfig()
    data: LabelledConfig
    train: ClassificationTrainConfig = ClassificationTrainConfig()
    validation: ClassificationValidation = ClassificationValidation()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.data.max_length > self.model.max_length:
            raise ValueError(
                f"data.max_length={self.data.max_length} is more than the model.max_length={self.model.max_length} "
                "learned positions; lower the first or raise the second"
            )
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
        assert model.classes is not None
        logits = model.classes(model.hidden(batch.tokens, batch.mask, batch.segments))
        return cross_entropy(logits, batch.labels, self.config.train.label_smoothing)

    @torch.inference_mode()
    def validate(self, model: BERT) -> dict[str, float]:
        assert self._held_out is not None and model.classes is not None
        nll, right, texts = 0.0, 0, 0
        for batch in self._held_out.whole_epoch():
            batch = batch.to(model.embedding.weight.device)
            logits = model.classes(model.hidden(batch.tokens, batch.mask, batch.segments))
            nll += cross_entropy(logits, batch.labels, 0.0).smoothed.item()
            right += int((logits.argmax(-1) == batch.labels).sum())
            texts += len(batch)
        return {"nll": nll / texts, "accuracy": right / texts}

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
