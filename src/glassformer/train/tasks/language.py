"""Language modeling: windows of text, each token predicted from those before it (Radford et al. 2018, equation 1)."""

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from glassformer.data.config import StreamConfig
from glassformer.data.documents import training_texts
from glassformer.data.shards.document_samples import StreamSamples
from glassformer.data.shards.shard_batches import open_shards, stream_shards
from glassformer.data.token_stream import training_streams, validation_stream
from glassformer.data.windows import WindowBatch, logits_within_documents, window_batches
from glassformer.errors import DataError
from glassformer.generate import LanguageDecodingConfig, stop_strings, token_biases
from glassformer.metrics.likelihood import bits, sliding_likelihood
from glassformer.models.gpt import GPT, GPTConfig
from glassformer.text import ByteTextConfig, TextSize, TokenizerPair
from glassformer.train.config import PlainTrainConfig, RunConfig, ValidationConfig
from glassformer.train.loss import Loss, projection_loss
from glassformer.train.task import BatchSource, CheckpointMetadata, Report, SourceCheckpoint, ValidationReport
from glassformer.train.tasks.vocabulary import (
    check_length,
    check_no_dropout,
    one_vocabulary,
    vocabulary_of_shards,
    with_vocabulary,
)


class LanguageValidation(ValidationConfig):
    """Validation by the likelihood of the text: every token predicted once, from a window that slides over it."""

    metric: Literal["loss", "bits_per_character", "bits_per_byte"] = "loss"
    """Chooses the best checkpoint and stops the run."""
    stride: int = Field(0, ge=0)
    """Tokens from one window to the next; 0 is ``data.context``, the cheapest and the most pessimistic."""
    max_tokens: int = Field(0, ge=0)
    """Tokens measured, from the start of the text; 0 is all."""


class LanguageRun(RunConfig):
    """Configuration of language modeling."""

    task: Literal["language"] = "language"
    model: GPTConfig = GPTConfig()
    text: ByteTextConfig = ByteTextConfig()
    data: StreamConfig
    train: PlainTrainConfig = PlainTrainConfig()
    validation: LanguageValidation = LanguageValidation()
    decoding: LanguageDecodingConfig = LanguageDecodingConfig()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_length("data.context", self.data.context, self.model.max_length, self.model.positions)
        if self.validation.stride > self.data.context:
            raise ValueError(
                f"validation.stride={self.validation.stride} is more than data.context={self.data.context}, "
                "so tokens would be left out; lower it"
            )
        check_no_dropout(self.text)
        return self


class LanguageModeling:
    """Text read into one stream, accounted for, and cut into windows anew each epoch."""

    unit = "tokens"

    def __init__(self, config: LanguageRun, origin: SourceCheckpoint | None = None):
        self.config = config
        shards = open_shards("language", StreamSamples, config.data) if config.data.shards else None
        self.tokenizers = vocabulary_of_shards(shards, config, origin) if shards else self.vocabulary(config, origin)
        tokenizer = self.tokenizers.source
        stop_strings(config.decoding.stop, tokenizer)  # an error now, not when the run is used
        token_biases(config.decoding.logit_bias, tokenizer)
        streams = [] if shards else training_streams(config.data, tokenizer)
        accounts = [shards.index.account] if shards else [stream.account for stream in streams]
        for account in accounts:
            account.check_unknown(config.text, config.train.start_from)
        self.held_out = validation_stream(config.data, tokenizer)
        held_out = [] if self.held_out is None else [ValidationReport(self.held_out.account)]
        self.accounts: Sequence[Report] = [*accounts, *held_out]
        if self.held_out is not None and len(self._measured) < 2:
            raise DataError(
                f"the validation text has {len(self._measured)} token, and at least 2 are needed; "
                "add text, or raise validation.max_tokens"
            )
        seed = config.train.seed
        self.batches: BatchSource = (
            stream_shards(shards, tokenizer, config.data, seed)
            if shards
            else window_batches(streams, tokenizer, config.data, seed)
        )

    @staticmethod
    def vocabulary(config: LanguageRun, origin: SourceCheckpoint | None = None) -> TokenizerPair:
        """The tokenizer of ``origin``, or one learned from the training text."""
        texts = partial(training_texts, config.data, tokens_span_lines=config.text.kind == "bytes")
        return one_vocabulary(config.text, texts, origin)

    @property
    def limit(self) -> str:
        data = self.config.data
        return f"data.batch_size={data.batch_size}" if data.batch_size else f"data.batch_tokens={data.batch_tokens}"

    @property
    def validates(self) -> bool:
        return self.held_out is not None

    def new_model(self) -> GPT:
        return GPT(self._model_config)

    def loss(self, model: GPT, batch: WindowBatch) -> Loss:
        hidden = model.hidden(batch.tokens, batch.documents).flatten(0, 1)
        smoothing = self.config.train.label_smoothing
        return projection_loss(model.output_projection, hidden, batch.labels.flatten(), smoothing)

    def validate(self, model: GPT) -> dict[str, float]:
        assert self.held_out is not None
        how, data, ids = self.config.validation, self.config.data, self._measured
        device, end_id = model.output_projection.weight.device, self.tokenizers.source.end_id
        logits = logits_within_documents(model, end_id) if data.within_documents else model
        found = sliding_likelihood(logits, ids, data.context, how.stride, batch_tokens=8192, device=device)
        return {"nll": found.nll_per_token, "perplexity": found.perplexity, **bits(found.nll, self._measured_size)}

    def metadata(self) -> CheckpointMetadata:
        values = {
            "decoding": self.config.decoding.model_dump(mode="json"),
            "context": self.config.data.context,
            "documents": self.config.data.documents,
            "within_documents": self.config.data.within_documents,
            "tokenizer": self.tokenizers.fingerprint,
        }
        return CheckpointMetadata(values, self.tokenizers.to_json())

    def texts(self, batch: WindowBatch) -> list[Any]:
        return [self.tokenizers.source.decode(row) for row in batch.tokens.tolist()]

    @property
    def _measured(self) -> NDArray[np.integer]:
        assert self.held_out is not None
        return self.held_out.ids[: self.config.validation.max_tokens or None]

    @cached_property
    def _measured_size(self) -> TextSize:
        """Size of the predicted text: all but the first token."""
        return self.tokenizers.source.size(self._measured, given=1)

    @cached_property
    def _model_config(self) -> GPTConfig:
        return GPTConfig.parse(
            with_vocabulary(self.config.model.model_dump(), self.tokenizers.source.vocab_size), "model"
        )
