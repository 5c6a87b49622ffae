"""What a model is worth on the validation pairs: likelihood, and the scores of what it translates."""

import math
import time
from dataclasses import dataclass

import torch

from glassformer.config import DataError
from glassformer.data import ordered_batches, read_pairs
from glassformer.evaluate import bleu, chrf
from glassformer.generate import DecodingConfig
from glassformer.train.config import RunConfig
from glassformer.train.loss import projected_cross_entropy
from glassformer.train.state import TrainState
from glassformer.translator import Translator, refuse_min_length


@dataclass(frozen=True)
class Scores:
    """``nll`` in nats a token, by teacher forcing, in float32."""

    nll: float
    bleu: float
    chrf: float
    seconds: float

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.nll, 700.0))

    def metric(self, name: str) -> float:
        """The value that is better when greater."""
        return {"bleu": self.bleu, "chrf": self.chrf, "loss": -self.nll}[name]


def validate(state: TrainState, pairs: tuple[list[str], list[str]]) -> Scores:
    """Raw text in, raw text out, with the weights that would be saved; the run's random numbers are not touched."""
    began = time.perf_counter()
    config, model = state.config, state.best_model
    was_training = model.training
    model.eval()
    sources, references = pairs
    nll = _mean_nll(state, sources, references)
    limit = config.validation.max_sentences or len(sources)
    decoding = DecodingConfig.parse({**config.decoding.model_dump(), "n_best": 1, "sample": False}, "decoding")
    translator = Translator([model], state.tokenizers, decoding)
    found = translator.translate(sources[:limit], beam_size=config.validation.beam_size)
    scores = Scores(
        nll,
        bleu(found, references[:limit], tokenize=config.validation.tokenize).score,
        chrf(found, references[:limit]).score,
        time.perf_counter() - began,
    )
    model.train(was_training)
    return scores


def read_validation(config: RunConfig) -> tuple[list[str], list[str]] | None:
    return read_pairs(config.data, config.data.validation) if config.data.validation else None


def check_validation(state: TrainState, pairs: tuple[list[str], list[str]]) -> None:
    """What is too long or too short to be validated is told before the first step, not at the first validation."""
    limit = state.config.model.max_length
    learned = state.config.model.positions == "learned"
    if state.config.decoding.min_length:
        texts = [text for text in pairs[0][: state.config.validation.max_sentences or None] if text.strip()]
        ends = [[*ids, state.tokenizers.source.end_id] for ids in state.tokenizers.source.encode_batch(texts)]
        refuse_min_length(state.config.decoding, ends, limit - 1 if learned else None)
    if not learned:
        return
    for tokenizer, texts in zip((state.tokenizers.source, state.tokenizers.target), pairs, strict=True):
        for line, ids in enumerate(tokenizer.encode_batch(texts), start=1):
            if len(ids) + 1 > limit:
                raise DataError(
                    f"data.validation, pair {line}: {len(ids) + 1} tokens are more than the model.max_length={limit} "
                    "learned positions; shorten or remove it"
                )


@torch.inference_mode()
def _mean_nll(state: TrainState, sources: list[str], targets: list[str]) -> float:
    tokenizers, model = state.tokenizers, state.best_model
    source_ids, target_ids = tokenizers.source.encode_batch(sources), tokenizers.target.encode_batch(targets)
    total, tokens = 0.0, 0
    for batch in ordered_batches(source_ids, target_ids, tokenizers, state.config.data.batch_tokens):
        batch = batch.to(state.device)
        counted = batch.target_sentences != 0
        hidden = model.hidden(batch.source, batch.target, batch.source_sentences, batch.target_sentences)
        projection = model.output_projection
        loss = projected_cross_entropy(hidden[counted], projection.weight, projection.bias, batch.wanted[counted], 0.0)
        total, tokens = total + loss.nll.item(), tokens + batch.target_tokens
    return total / tokens
