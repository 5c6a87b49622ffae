"""Masked language modeling: hidden tokens are told from what stands around them (Devlin et al. 2019, section 3.1)."""

import math
from functools import partial
from typing import Any, Literal, Self

from pydantic import model_validator
from torch import Tensor

from glassformer.data.config import MaskedConfig
from glassformer.data.documents import training_texts
from glassformer.data.masking import MaskedBatch, masked_batches
from glassformer.data.shards.document_samples import MaskedSamples
from glassformer.data.shards.shard_batches import masked_shards, open_shards
from glassformer.data.token_stream import training_streams, validation_stream
from glassformer.models.bert import BERT, BERTConfig
from glassformer.text import TextConfig, TokenizerPair
from glassformer.text.config import MARKS
from glassformer.train.config import PlainTrainConfig, RunConfig, ValidationConfig
from glassformer.train.loss import Loss, indices_of, projection_loss
from glassformer.train.task import BatchSource, SourceCheckpoint
from glassformer.train.tasks.encoder import EncoderTask, Labeled
from glassformer.train.tasks.vocabulary import check_length, check_no_dropout, one_vocabulary, vocabulary_of_shards


class MaskedValidation(ValidationConfig):
    """Validation by masked tokens of the validation text; the same ones are masked each time."""

    metric: Literal["loss", "accuracy"] = "loss"
    """Chooses the best checkpoint and stops the run."""


class MaskedRun(RunConfig):
    """Configuration of masked pre-training. ``[CLS]``, ``[SEP]`` and ``[MASK]`` come by themselves."""

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
        check_length("data.max_length", self.data.max_length, self.model.max_length)
        check_no_dropout(self.text)
        return self


class MaskedModeling(EncoderTask):
    """Text read, accounted for, cut into sequences and masked anew each epoch."""

    unit = "hidden tokens"

    def __init__(self, config: MaskedRun, origin: SourceCheckpoint | None = None):
        data, seed = config.data, config.train.seed
        shards = open_shards("masked", MaskedSamples, data) if data.shards else None
        tokenizers = vocabulary_of_shards(shards, config, origin) if shards else self.vocabulary(config, origin)
        tokenizer = tokenizers.source
        streams = [] if shards else training_streams(data, tokenizer)
        other = validation_stream(data, tokenizer)
        once = data.model_copy(update={"weights": []})
        held_out = None if other is None else masked_batches([other], tokenizer, once, seed=0)
        batches: BatchSource = (
            masked_shards(shards, tokenizer, data, seed) if shards else masked_batches(streams, tokenizer, data, seed)
        )
        accounts = [shards.index.account] if shards else [stream.account for stream in streams]
        others = [] if other is None else [other.account]
        super().__init__(config, tokenizers, (accounts, others), (batches, held_out))

    @staticmethod
    def vocabulary(config: MaskedRun, origin: SourceCheckpoint | None = None) -> TokenizerPair:
        """The tokenizer of ``origin``, or one learned from the training text."""
        texts = partial(training_texts, config.data, tokens_span_lines=config.text.kind == "bytes")
        return one_vocabulary(config.text, texts, origin, MARKS)

    def loss(self, model: BERT, batch: MaskedBatch) -> Loss:
        """Never holding the logits of all hidden tokens."""
        assert model.output_projection is not None
        hidden, labels = self._hidden(model, batch)
        hidden = hidden.to(model.encoder.dtype)  # the type of the products, as in a stack that is projected at once
        return projection_loss(model.output_projection, hidden, labels, self.config.train.label_smoothing)

    def validate(self, model: BERT) -> dict[str, float]:
        scores = super().validate(model)
        return scores | {"perplexity": math.exp(min(scores["nll"], 700.0))}

    def _labeled(self, model: BERT, batch: MaskedBatch) -> Labeled:
        assert model.output_projection is not None
        hidden, labels = self._hidden(model, batch)
        return model.output_projection(hidden), labels

    def texts(self, batch: MaskedBatch) -> list[Any]:
        return [self.tokenizers.source.decode(row) for row in batch.labels.tolist()]

    @staticmethod
    def _hidden(model: BERT, batch: MaskedBatch) -> tuple[Tensor, Tensor]:
        """Transformed vectors of the masked tokens, and their targets; other tokens need no logits."""
        assert model.transform is not None
        predicted = indices_of(batch.predicted, batch.n_targets)
        hidden = model.hidden(batch.tokens, batch.mask, batch.segments, predicted)
        return model.transform(hidden), batch.labels.flatten()[predicted]
