"""A tag for every word (Devlin et al. 2019, section 5.3), from scratch or from a pre-trained encoder."""

from functools import cached_property, partial
from typing import Any, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor

from glassformer.data.account import Account
from glassformer.data.labelled_config import TaggedConfig
from glassformer.data.tagged import TaggedBatch, TaggedBatches, prepare_tagged, tagged_texts
from glassformer.models.bert import BERT, BERTConfig
from glassformer.text import TextConfig
from glassformer.train.config import AccuracyValidation, PlainTrainConfig, RunConfig
from glassformer.train.loss import Loss, cross_entropy
from glassformer.train.task import Document, Origin
from glassformer.train.tasks.naming import naming_scores
from glassformer.train.tasks.vocabulary import MARKS, check_length, one_vocabulary, with_vocabulary


class TaggingRun(RunConfig):
    """Everything one training of a tagger depends on."""

    task: Literal["tagging"] = "tagging"
    model: BERTConfig = BERTConfig(masked_tokens=False)
    text: TextConfig = TextConfig()
    data: TaggedConfig
    train: PlainTrainConfig = PlainTrainConfig()
    validation: AccuracyValidation = AccuracyValidation()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_length(self.data.max_length, self.model.max_length)
        return self


class Tagging:
    """Tagged sentences read, accounted for and batched by length; the tag stands on the first piece of a word."""

    unit = "words"

    def __init__(self, config: TaggingRun, origin: Origin | None = None):
        self.config, data = config, config.data
        self.tokenizers = one_vocabulary(config.text, partial(tagged_texts, data), origin, MARKS)
        tokenizer = self.tokenizers.source
        examples = prepare_tagged(data, data.train, tokenizer)
        examples.account.check_unknown(config.text)
        self.tags = examples.tags
        self._held_out = None
        if data.validation:
            held_out = prepare_tagged(data, data.validation, tokenizer, self.tags)
            self._held_out = TaggedBatches(held_out, tokenizer, data, seed=0)
        self.accounts: list[Account] = [examples.account]
        self.batches = TaggedBatches(examples, tokenizer, data, config.train.seed)

    @property
    def limit(self) -> str:
        return f"data.batch_tokens={self.config.data.batch_tokens}"

    @property
    def validates(self) -> bool:
        return self._held_out is not None

    def new_model(self) -> BERT:
        return BERT(self._model_config)

    def loss(self, model: BERT, batch: TaggedBatch) -> Loss:
        return cross_entropy(*self._words(model, batch), self.config.train.label_smoothing)

    @torch.inference_mode()
    def validate(self, model: BERT) -> dict[str, float]:
        assert self._held_out is not None
        batches = (batch.to(model.embedding.weight.device) for batch in self._held_out.whole_epoch())
        return naming_scores(self._words(model, batch) for batch in batches)

    def document(self) -> Document:
        values = {
            "tags": list(self.tags),
            "max_length": self.config.data.max_length,
            "tokenizer": self.tokenizers.fingerprint,
        }
        return Document(values, self.tokenizers.to_json())

    def texts(self, batch: TaggedBatch) -> list[Any]:
        return [self.tokenizers.source.decode(row) for row in batch.tokens.tolist()]

    @cached_property
    def _model_config(self) -> BERTConfig:
        values = with_vocabulary(self.config.model.model_dump(), self.tokenizers)
        return BERTConfig.parse({**values, "n_tags": len(self.tags)}, "model")

    @staticmethod
    def _words(model: BERT, batch: TaggedBatch) -> tuple[Tensor, Tensor]:
        """The logits of every word, and its tag."""
        assert model.tags is not None
        hidden = model.hidden(batch.tokens, batch.mask, batch.segments)[batch.word_starts]
        return model.tags(hidden[None])[0], batch.tags[batch.word_starts]
