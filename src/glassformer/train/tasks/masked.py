"""Masked language modelling: hidden tokens are told from what stands around them (Devlin et al. 2019, section 3.1)."""

import math
from functools import cached_property, partial
from typing import Any, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor

from glassformer.data.account import Account
from glassformer.data.documents import training_texts
from glassformer.data.masking import MaskedBatch, MaskedSequences
from glassformer.data.masking_config import MaskedConfig
from glassformer.data.stream import training_streams, validation_stream
from glassformer.models.bert import BERT, BERTConfig
from glassformer.text import TextConfig
from glassformer.train.config import PlainTrainConfig, RunConfig, ValidationConfig
from glassformer.train.loss import Loss, projected_cross_entropy
from glassformer.train.task import Document, Origin
from glassformer.train.tasks.naming import naming_scores
from glassformer.train.tasks.vocabulary import MARKS, check_length, one_vocabulary, with_vocabulary


class MaskedValidation(ValidationConfig):
    """How well hidden tokens of the validation text are told; the same ones are hidden each time."""

    metric: Literal["loss", "accuracy"] = "loss"
    """Chooses the best checkpoint and stops the run."""


class MaskedRun(RunConfig):
    """Everything one pre-training of an encoder depends on. ``[CLS]``, ``[SEP]`` and ``[MASK]`` come by themselves."""

    task: Literal["masked"] = "masked"
    model: BERTConfig = BERTConfig()
    text: TextConfig = TextConfig()
    data: MaskedConfig
    train: PlainTrainConfig = PlainTrainConfig()
    validation: MaskedValidation = MaskedValidation()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.model.masked_tokens:
            raise ValueError("model.masked_tokens=false leaves out the head that this task trains; set it to true")
        check_length(self.data.max_length, self.model.max_length)
        return self


class MaskedModelling:
    """Text read, accounted for, cut into sequences and masked anew each epoch."""

    unit = "hidden tokens"

    def __init__(self, config: MaskedRun, origin: Origin | None = None):
        self.config = config
        self.tokenizers = one_vocabulary(config.text, partial(training_texts, config.data), origin, MARKS)
        tokenizer = self.tokenizers.source
        streams = training_streams(config.data, tokenizer)
        for stream in streams:
            stream.account.check_unknown(config.text)
        self.accounts: list[Account] = [stream.account for stream in streams]
        held_out = validation_stream(config.data, tokenizer)
        once = config.data.model_copy(update={"weights": []})
        self._held_out = None if held_out is None else MaskedSequences([held_out], tokenizer, once, seed=0)
        self.batches = MaskedSequences(streams, tokenizer, config.data, config.train.seed)

    @property
    def limit(self) -> str:
        return f"data.batch_tokens={self.config.data.batch_tokens}"

    @property
    def validates(self) -> bool:
        return self._held_out is not None

    def new_model(self) -> BERT:
        return BERT(self._model_config)

    def loss(self, model: BERT, batch: MaskedBatch) -> Loss:
        hidden = self._transformed(model, batch)
        assert model.output_projection is not None
        weight, bias = model.output_projection.weight, model.output_projection.bias
        wanted = batch.wanted[batch.predicted]
        return projected_cross_entropy(hidden, weight, bias, wanted, self.config.train.label_smoothing)

    @torch.inference_mode()
    def validate(self, model: BERT) -> dict[str, float]:
        assert self._held_out is not None and model.output_projection is not None
        project = model.output_projection
        batches = (batch.to(project.weight.device) for batch in self._held_out.whole_epoch())
        scores = naming_scores(
            (project(self._transformed(model, batch)), batch.wanted[batch.predicted]) for batch in batches
        )
        return scores | {"perplexity": math.exp(min(scores["nll"], 700.0))}

    def document(self) -> Document:
        values = {"max_length": self.config.data.max_length, "tokenizer": self.tokenizers.fingerprint}
        return Document(values, self.tokenizers.to_json())

    def texts(self, batch: MaskedBatch) -> list[Any]:
        return [self.tokenizers.source.decode(row) for row in batch.wanted.tolist()]

    @cached_property
    def _model_config(self) -> BERTConfig:
        return BERTConfig.parse(with_vocabulary(self.config.model.model_dump(), self.tokenizers), "model")

    @staticmethod
    def _transformed(model: BERT, batch: MaskedBatch) -> Tensor:
        """Of the hidden tokens only: the others need no logits."""
        assert model.transform is not None
        return model.transform(model.hidden(batch.tokens, batch.mask, batch.segments)[batch.predicted])
