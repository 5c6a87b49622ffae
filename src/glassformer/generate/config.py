"""Settings and results of decoding."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_serializer, field_validator, model_validator

from glassformer.config import Config, FormerKeys
from glassformer.errors import DataError

FinishReason = Literal["end", "length", "stop"]


class DecodingConfig(Config):
    """Section 6.1: beam 4 with length penalty α = 0.6, at most source + 50 tokens."""

    former_keys: ClassVar[FormerKeys] = {"compiled": {True: {"engine": "auto"}, False: {"engine": "torch"}}}
    beam_size: int = Field(4, gt=0)
    """1 is greedy."""
    n_best: int = Field(1, gt=0, description="translations of each text")
    patience: float = Field(1.0, ge=0)
    """A beam ends after patience · beam_size finished hypotheses (Kasai et al. 2022, arXiv:2204.05424), unless a live
    one would score better by ending now. With 0 it ends only when no better hypothesis is possible."""
    length_penalty: Literal["none", "average", "gnmt"] = Field(
        "gnmt", description="divisor of the log-probability: 1, |y|^alpha, ((5+|y|)/6)^alpha"
    )
    alpha: float = Field(0.6, ge=0, description="exponent of the length penalty")
    max_extra: int = Field(50, ge=0)
    """Maximum target tokens beyond the source length; ``max_length``, if set, takes precedence."""
    max_length: int | None = Field(None, gt=0, description="tokens at most")
    min_length: int = Field(0, ge=0, description="tokens at least")
    no_repeat_ngram: int = Field(0, ge=0, description="no n-gram of this length twice; 0 is off")
    repetition_penalty: float = Field(1.0, ge=1)
    """Divides the positive logits of tokens already in the text, and multiplies the negative ones (Keskar et al. 2019,
    arXiv:1909.05858). The prompt of a language model counts as text; the end token is exempt. 1 is off."""
    logit_bias: dict[str, Annotated[float, Field(allow_inf_nan=True)]] = Field({})
    """Biases added to the logits, by token text or by `#id`: `{"the" = -2, "#7" = 1}`; `-inf` forbids a token.
    Log-probabilities include the penalty and finite biases."""
    sample: bool = Field(False, description="sample instead of searching")
    temperature: float = Field(1.0, ge=0, description="softmax temperature for sampling; 0 is greedy")
    top_k: int = Field(0, ge=0, description="draw from the k most probable; 0 is off")
    top_p: float = Field(1.0, gt=0, le=1, description="draw from the smallest set with this probability")
    min_p: float = Field(0.0, ge=0, le=1, description="minimum probability, relative to the most probable token")
    seed: int = Field(1, ge=0, description="random seed for sampling")
    precision: Literal["float32", "bfloat16", "int8"] = Field("float32", description="precision of matrix products")
    engine: Literal["auto", "torch", "native"] = "auto"
    """Engine of the model. ``native``: the C++ kernels, on a CPU. ``torch``: PyTorch. ``auto``: the kernels for the
    parts that they can compute."""
    use_cache: bool = Field(True, description="cache keys and values; without, PyTorch computes the model")
    batch_tokens: int = Field(4096, gt=0)
    """Maximum padded source tokens of a batch, times hypotheses; in the kernels at most 1,024 source tokens. It changes
    the speed, never the text."""

    @field_validator("logit_bias", mode="before")
    @classmethod
    def _named_by_text(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {
            f"#{key}" if isinstance(key, int) else key: -math.inf if value == "-inf" else value
            for key, value in values.items()
        }

    @field_validator("logit_bias")
    @classmethod
    def _added(cls, values: dict[str, float]) -> dict[str, float]:
        for key, value in values.items():
            if math.isnan(value) or value == math.inf:
                raise ValueError(f"{key!r} = {value} cannot be added to a logit; choose a finite number, or -inf")
        return values

    @field_serializer("logit_bias", when_used="json")
    def _in_json(self, values: dict[str, float]) -> dict[str, Any]:
        """Write infinity as a string, since JSON has none."""
        return {key: value if math.isfinite(value) else str(value) for key, value in values.items()}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.precision == "int8" and not self.use_cache:
            raise ValueError("precision=int8 needs the cache; set use_cache=true, or precision=float32")
        if not self.sample and self.n_best > self.beam_size:
            raise ValueError(
                f"n_best={self.n_best} exceeds beam_size={self.beam_size}; raise beam_size or lower n_best"
            )
        if self.max_length is not None and self.min_length > self.max_length:
            raise ValueError(
                f"min_length={self.min_length} is more than max_length={self.max_length}; "
                "lower the first or raise the second"
            )
        return self


class TranslationDecodingConfig(DecodingConfig):
    """Section 6.1: beam 4 with length penalty α = 0.6, at most source + 50 tokens."""

    max_source: int | None = Field(None, gt=1)
    """Maximum tokens of a source text, end token included. Default: ``data.max_length`` of the training if the
    checkpoint stores it, else ``model.max_length``."""
    long_source: Literal["split", "truncate", "refuse"] = "split"
    """Handling of longer texts: split into pieces (at sentence ends if possible), truncate to ``max_source``, or
    refuse."""
    unknown: Literal["drop", "copy"] = "drop"
    """Handling of ``<unk>`` in a translation: drop it, or copy the source word (or unknown characters) with the most
    attention. A guided head is preferred if there is one."""


class LanguageDecodingConfig(DecodingConfig):
    """Decoding of a language model; it samples by default."""

    beam_size: int = Field(1, gt=0)
    """1 is greedy."""
    sample: bool = Field(True, description="sample instead of searching")
    stop: tuple[str, ...] = ()
    """Stop strings: the text ends before the first occurrence of any of them, even within a token."""

    @field_validator("stop", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value

    @field_validator("stop")
    @classmethod
    def _not_empty(cls, strings: tuple[str, ...]) -> tuple[str, ...]:
        if "" in strings:
            raise ValueError("an empty stop string would end every text at once; leave it out")
        return strings


@dataclass(frozen=True)
class Hypothesis:
    """One generated sequence, start and end tokens not included."""

    tokens: list[int]
    score: float
    """The log-probability divided by the length penalty."""
    log_prob: float
    token_log_probs: list[float] = field(repr=False)
    """Log-probability in nats of each token, and of the end token if ``finish_reason`` is ``end``."""
    finish_reason: FinishReason = "end"
    """``end``: the end token was chosen. ``length``: the text was truncated at its maximum length. ``stop``: a stop
    string followed; the last of ``tokens`` may contain part of it."""
    end_log_prob: float = field(default=0.0, repr=False)
    """Log-probability of the end token after a text that a beam truncated: only complete texts are comparable."""

    def predicted(self, end: int) -> list[int]:
        """Token of each log-probability: ``tokens``, and the end token if it was chosen."""
        return [*self.tokens, end] if len(self.token_log_probs) > len(self.tokens) else self.tokens


def refuse_min_length(config: DecodingConfig, sources: Sequence[Sequence[int]], longest_target: int | None) -> None:
    """Raise ``DataError`` if ``min_length`` exceeds the maximum length for the shortest of ``sources``."""
    shortest = min((len(ids) - 1 for ids in sources), default=config.min_length)  # without the end token
    most = config.max_length or shortest + config.max_extra
    most = most if longest_target is None else min(most, longest_target)
    if config.min_length > most:
        raise DataError(
            f"min_length={config.min_length} is more than the maximum of {most} tokens for a text of {shortest}; "
            "lower it, or raise max_extra or max_length"
        )


def length_penalty(kind: str, length: int, alpha: float) -> float:
    """Divisor of the log-probability; ``length`` counts the end token.

    ``average``: |y|^α. ``gnmt``: ((5 + |y|) / 6)^α (Wu et al. 2016, arXiv:1609.08144, equation 14).
    """
    if kind == "none":
        return 1.0
    return float(length**alpha if kind == "average" else ((5 + length) / 6) ** alpha)
