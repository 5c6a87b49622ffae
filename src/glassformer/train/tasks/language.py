"""Language modelling: windows of text, each token predicted from those before it (Radford et al. 2018, equation 1)."""

from functools import cached_property, partial
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from glassformer.data.account import Account
from glassformer.data.documents import training_texts
from glassformer.data.stream import training_streams, validation_stream
from glassformer.data.stream_config import StreamConfig
from glassformer.data.windows import WindowBatch, Windows
from glassformer.evaluate.sliding import sliding_likelihood
from glassformer.generate import DecodingConfig
from glassformer.models.gpt import GPT, GPTConfig
from glassformer.text import TextConfig
from glassformer.train.config import PlainTrainConfig, RunConfig, ValidationConfig
from glassformer.train.loss import Loss, projected_cross_entropy
from glassformer.train.task import Document, Origin
from glassformer.train.tasks.vocabulary import one_vocabulary, with_vocabulary


class LanguageValidation(ValidationConfig):
    """How likely the validation text is: every token predicted once, from a window that slides over it."""

    metric: Literal["loss", "bits_per_character"] = "loss"
    """Chooses the best checkpoint and stops the run."""
    stride: int = Field(0, ge=0)
    """Tokens from one window to the next; 0 is ``data.context``, the cheapest and the most pessimistic."""
    max_tokens: int = Field(0, ge=0)
    """Tokens measured, from the start of the text; 0 is all."""


class LanguageRun(RunConfig):
    """Everything one training of a language model depends on."""

    task: Literal["language"] = "language"
    model: GPTConfig = GPTConfig()
    text: TextConfig = TextConfig()
    data: StreamConfig
    train: PlainTrainConfig = PlainTrainConfig()
    validation: LanguageValidation = LanguageValidation()
    decoding: DecodingConfig = DecodingConfig(beam_size=1, sample=True)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.model.positions == "learned" and self.data.context > self.model.max_length:
            raise ValueError(
                f"data.context={self.data.context} is more than the model.max_length={self.model.max_length} "
                "learned positions; lower the first or raise the second"
            )
        if self.validation.stride > self.data.context:
            raise ValueError(
                f"validation.stride={self.validation.stride} is more than data.context={self.data.context}, "
                "so tokens would be left out; lower it"
            )
        if self.text.bpe_dropout:
            raise ValueError("text.bpe_dropout is for translation; text for a language model is encoded once")
        return self


class LanguageModelling:
    """Text read into one stream, accounted for, and cut into windows anew each epoch."""

    unit = "tokens"

    def __init__(self, config: LanguageRun, origin: Origin | None = None):
        self.config = config
        self.tokenizers = one_vocabulary(config.text, partial(training_texts, config.data), origin)
        tokenizer = self.tokenizers.source
        streams = training_streams(config.data, tokenizer)
        for stream in streams:
            stream.account.check_unknown(config.text)
        self.accounts: list[Account] = [stream.account for stream in streams]
        self.held_out = validation_stream(config.data, tokenizer)
        self.batches = Windows(streams, tokenizer, config.data, config.train.seed)

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
        weight, bias = model.output_projection.weight, model.output_projection.bias
        return projected_cross_entropy(hidden, weight, bias, batch.wanted.flatten(), self.config.train.label_smoothing)

    def validate(self, model: GPT) -> dict[str, float]:
        assert self.held_out is not None
        how, data = self.config.validation, self.config.data
        ids = self.held_out.ids[: how.max_tokens or None]
        device = model.output_projection.weight.device
        found = sliding_likelihood(model, ids, data.context, how.stride, batch_tokens=8192, device=device)
        characters = self.held_out.characters * len(ids) / len(self.held_out.ids)
        return {
            "nll": found.nll_per_token,
            "perplexity": found.perplexity,
            "bits_per_character": found.nll / 0.6931471805599453 / characters,
        }

    def document(self) -> Document:
        values = {
            "decoding": self.config.decoding.model_dump(mode="json"),
            "context": self.config.data.context,
            "documents": self.config.data.documents,
            "tokenizer": self.tokenizers.fingerprint,
        }
        return Document(values, self.tokenizers.to_json())

    def texts(self, batch: WindowBatch) -> list[Any]:
        return [self.tokenizers.source.decode(row) for row in batch.tokens.tolist()]

    @cached_property
    def _model_config(self) -> GPTConfig:
        return GPTConfig.parse(with_vocabulary(self.config.model.model_dump(), self.tokenizers), "model")
