"""Translation: pairs of sentences, label-smoothed cross-entropy (section 5.4), scores of what is really translated."""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import Any, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator

from glassformer.alignment.attention import in_decoder
from glassformer.data import Batch, DataConfig, ordered_batches, pair_batches, prepare, read_pairs, read_texts
from glassformer.data.corpus import CHARACTERS_PER_TOKEN, held_out_pairs
from glassformer.data.read_report import ReadReport
from glassformer.data.shards.pair_samples import PairSamples
from glassformer.data.shards.shard_batches import open_shards, pair_shards
from glassformer.data.shards.shard_set import ShardSet
from glassformer.errors import ConfigError, DataError
from glassformer.generate import TranslationDecodingConfig, refuse_min_length, token_biases
from glassformer.layers.position import ENCODINGS
from glassformer.metrics import bleu, chrf, tokenizer_for
from glassformer.metrics.translation import bleu_metric
from glassformer.models.device import choose_device
from glassformer.models.encoder_decoder import EncoderDecoderConfig
from glassformer.models.recurrent import RecurrentConfig
from glassformer.models.registry import build_model, build_uninitialized
from glassformer.native import check_decoding
from glassformer.predict.translator import Translator
from glassformer.text import TextConfig, TokenizerPair, train_tokenizers
from glassformer.text.errors import without_text_warnings
from glassformer.train.config import RunConfig, ValidationConfig
from glassformer.train.guided_alignment import GuidedAlignmentConfig, guided
from glassformer.train.loss import Loss, indices_of, projection_loss
from glassformer.train.task import (
    BatchSource,
    CheckpointMetadata,
    Message,
    Report,
    SourceCheckpoint,
    ValidationReport,
)
from glassformer.train.tasks.vocabulary import check_length, vocabulary_of, vocabulary_of_shards, with_vocabulary

TEXTS_SEEN = 5000
"""Number of target texts that ``validation.tokenize = "auto"`` examines."""


class TranslationValidation(ValidationConfig):
    """Validation on ``data.validation``, and early stopping."""

    metric: Literal["bleu", "chrf", "loss"] = "bleu"
    """Chooses the best checkpoint and stops the run."""
    beam_size: int = Field(1, gt=0, description="beam size of validation; 1 is greedy")
    max_sentences: int = Field(0, ge=0)
    """Sentences decoded; 0 is all."""
    tokenize: Literal["auto", "13a", "char", "intl", "none", "zh", "ja-mecab", "ko-mecab"] = "auto"
    """sacreBLEU's tokenizer. ``auto`` follows the target text: ``zh`` for Chinese, ``ja-mecab`` (if installed) or
    ``char`` for Japanese, ``char`` for other text without spaces, else ``13a``. ``none``: already tokenized."""


class TranslationRun(RunConfig):
    """Configuration of translation."""

    task: Literal["translation"] = "translation"
    model: EncoderDecoderConfig = EncoderDecoderConfig()
    text: TextConfig = TextConfig()
    data: DataConfig
    validation: TranslationValidation = TranslationValidation()
    decoding: TranslationDecodingConfig = TranslationDecodingConfig()
    guided_alignment: GuidedAlignmentConfig = GuidedAlignmentConfig()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.model.tie_embeddings and not self.text.joint:
            raise ValueError(
                "model.tie_embeddings=true needs one vocabulary; set text.joint=true or model.tie_embeddings=false"
            )
        max_length, positions = self.model.max_length, self.model.positions
        check_length("data.max_length", self.data.max_length, max_length, positions)
        check_length("decoding.max_source", self.decoding.max_source or 0, max_length, positions)
        if ENCODINGS[positions].bounded and self.text.bpe_dropout:
            raise ValueError(
                f"text.bpe_dropout lengthens sentences, and {positions} positions end; "
                "set it to 0, or model.positions=sinusoidal"
            )
        if self.data.alignments:
            how = self.guided_alignment
            in_decoder("guided_alignment.layer", how.layer, self.cross_attention_layers)
            in_decoder("guided_alignment.head", how.head, self.model.n_heads)
        return self

    @property
    def cross_attention_layers(self) -> int:
        """Number of decoder layers with attention over the source."""
        return self.model.n_decoder_layers


class RecurrentRun(TranslationRun):
    """The same for the recurrent baseline. Sentences do not share rows, whatever ``data.row_tokens`` says."""

    model: RecurrentConfig = RecurrentConfig()  # type: ignore[assignment]

    @property
    def cross_attention_layers(self) -> int:
        """The first alone."""
        return 1

    @model_validator(mode="after")
    def _in_float32(self) -> Self:
        if self.train.precision != "float32":
            raise ValueError(f"train.precision={self.train.precision} is for the Transformer; leave it out")
        return self


class TranslationTask:
    """Pairs read, accounted for and batched; tokenizers are trained where none come with ``origin``."""

    unit = "target tokens"

    def __init__(self, config: TranslationRun, origin: SourceCheckpoint | None = None):
        self.config = config
        self._pairs = read_pairs(config.data, config.data.validation) if config.data.validation else None
        self.shards = open_shards("translation", PairSamples, config.data) if config.data.shards else None
        self.tokenizers = (
            vocabulary_of_shards(self.shards, config, origin) if self.shards else self.vocabulary(config, origin)
        )
        token_biases(config.decoding.logit_bias, self.tokenizers.target)  # an error now, not at the first validation
        accounts = list[Report]()
        if config.data.validation_share:
            sources, targets, account = held_out_pairs(config.data, self.tokenizers)
            self._pairs, accounts = (sources, targets), [ValidationReport(account)]
        self.batches, read = self._training_batches()
        for account in read:
            account.check_unknown(config.text, config.train.start_from)
        self.bleu_tokenize = self._bleu_tokenize()
        bleu_metric(self.bleu_tokenize)  # a tokenizer that is not installed is an error before the first step
        how = f"BLEU by sacreBLEU's tokenizer {self.bleu_tokenize}"
        is_automatic = config.validation.tokenize == "auto" and self._pairs is not None
        notes = [Message(f"validation: {how} (validation.tokenize=auto)")] if is_automatic else []
        self.accounts: Sequence[Report] = [*read, *accounts, *notes]
        if self._pairs is not None:
            self._check_validation(*self._pairs)
            self._check_decoding()

    @staticmethod
    def vocabulary(config: TranslationRun, origin: SourceCheckpoint | None = None) -> TokenizerPair:
        """The tokenizers of ``origin``, or those learned from the training text."""
        return _tokenizers(config, origin)

    def _training_batches(self) -> tuple[BatchSource, list[ReadReport]]:
        """The training data, and the account of reading them."""
        data, text, seed = self.config.data, self.config.text, self.config.train.seed
        # Sentences of the recurrent model would run into another.
        row_tokens = data.row_tokens if self.config.model.shares_rows else 0
        if self.shards is not None:
            batches = pair_shards(self.shards, self.tokenizers, data, seed, text.bpe_dropout, row_tokens)
            return batches, [self.shards.index.account]
        files = [[file] for file in data.alignments] or [[]] * len(data.train)
        corpora = [prepare(data, [path], self.tokenizers, file) for path, file in zip(data.train, files)]
        options = data.batch_tokens, seed, data.weights, text.bpe_dropout, data.bucket_noise, row_tokens
        return pair_batches(corpora, self.tokenizers, *options), [corpus.account for corpus in corpora]

    @property
    def limit(self) -> str:
        return f"data.batch_tokens={self.config.data.batch_tokens}"

    @property
    def validates(self) -> bool:
        return self._pairs is not None

    def new_model(self) -> Any:
        return build_model(self._model_values, "model")

    def loss(self, model: Any, batch: Batch) -> Loss:
        counted = indices_of(batch.target_sentences != 0, batch.n_targets)
        run = partial(model.hidden, batch.source, batch.target, batch.source_sentences, batch.target_sentences, counted)
        if batch.links is None:
            hidden, guidance = run(), None
        else:
            hidden, guidance = guided(model, self.config.guided_alignment, batch.links, run)
        labels = batch.labels.flatten().index_select(0, counted)
        loss = projection_loss(model.output_projection, hidden, labels, self.config.train.label_smoothing)
        return loss._replace(guidance=guidance)

    def validate(self, model: Any) -> dict[str, float]:
        """Raw text in, raw text out; ``nll`` in nats a token, by teacher forcing, in float32."""
        assert self._pairs is not None
        sources, references = self._pairs
        how = self.config.validation
        nll = self._mean_nll(model, sources, references)
        limit = how.max_sentences or len(sources)
        decoding = self.config.decoding
        # A text that is too long must not end the training.
        longer = "split" if decoding.long_source == "refuse" else decoding.long_source
        values = {**decoding.model_dump(), "n_best": 1, "sample": False, "long_source": longer}
        translator = Translator([model], self.tokenizers, TranslationDecodingConfig.parse(values, "decoding"))
        translator.longest_source = self.config.data.max_length
        with without_text_warnings():
            hypotheses = translator.translate(sources[:limit], beam_size=how.beam_size)
        return {
            "bleu": bleu(hypotheses, references[:limit], tokenize=self.bleu_tokenize).score,
            "chrf": chrf(hypotheses, references[:limit]).score,
            "nll": nll,
            "perplexity": math.exp(min(nll, 700.0)),
        }

    def metadata(self) -> CheckpointMetadata:
        values = {
            "decoding": self.config.decoding.model_dump(mode="json"),
            "bleu_tokenize": self.bleu_tokenize,
            "max_length": self.config.data.max_length,
            "languages": [self.config.data.source, self.config.data.target],
            "tokenizer": self.tokenizers.fingerprint,
        }
        if self.config.data.alignments:
            reading = self.config.guided_alignment.reading(self.config.cross_attention_layers)
            values["guided_alignment"] = reading._asdict()
        return CheckpointMetadata(values, self.tokenizers.to_json())

    def texts(self, batch: Batch) -> list[Any]:
        decode = self.tokenizers
        return [[decode.source.decode(source), decode.target.decode(target)] for source, target in batch.pairs()]

    def _bleu_tokenize(self) -> str:
        """The setting; for ``auto``, the tokenizer for the target text of the validation data, else of training."""
        if self.config.validation.tokenize != "auto":
            return self.config.validation.tokenize
        if self._pairs is not None:
            texts: Iterable[str] = self._pairs[1]
        elif self.shards is not None:
            texts = self._first_targets(self.shards)
        else:
            texts = read_texts(self.config.data, "target")
        return tokenizer_for(islice(texts, TEXTS_SEEN))

    def _first_targets(self, shards: ShardSet) -> Iterator[str]:
        (_, target), _ = shards.columns(np.arange(min(TEXTS_SEEN, shards.index.samples)))
        return (self.tokenizers.target.decode(target[i].tolist()) for i in range(len(target)))

    @cached_property
    def _model_values(self) -> dict[str, Any]:
        """Values of the model with the vocabulary sizes of the tokenizers."""
        source, target = self.tokenizers.source, self.tokenizers.target
        actual = source.vocab_size if source is target else (source.vocab_size, target.vocab_size)
        return with_vocabulary(self.config.model.model_dump(), actual)

    @torch.inference_mode()
    def _mean_nll(self, model: Any, sources: list[str], targets: list[str]) -> float:
        tokenizers, projection = self.tokenizers, model.output_projection
        source_ids, target_ids = tokenizers.source.encode_batch(sources), tokenizers.target.encode_batch(targets)
        total, tokens = 0.0, 0
        for batch in ordered_batches(source_ids, target_ids, tokenizers, self.config.data.batch_tokens):
            batch = batch.to(projection.weight.device)
            counted = batch.target_sentences != 0
            hidden = model.hidden(batch.source, batch.target, batch.source_sentences, batch.target_sentences)
            loss = projection_loss(projection, hidden[counted], batch.labels[counted], 0.0)
            assert loss.nll is not None
            total, tokens = total + loss.nll.item(), tokens + batch.n_targets
        return total / tokens

    def _check_decoding(self) -> None:
        """Refuse an engine or precision that the validation could not use."""
        decoding = self.config.decoding
        with torch.device("meta"):
            model = build_uninitialized(self._model_values, "model").eval()
        try:
            check_decoding(model, decoding.engine, decoding.precision, choose_device(self.config.train.device))
        except ConfigError as error:
            raise ConfigError(f"decoding.{error}") from None

    def _check_validation(self, sources: list[str], targets: list[str]) -> None:
        """Reject sentences that are too long or short for validation before the first step."""
        config, tokenizers = self.config, self.tokenizers
        limit = config.model.max_length if ENCODINGS[config.model.positions].bounded else None
        if config.decoding.min_length:
            texts = [text for text in sources[: config.validation.max_sentences or None] if text.strip()]
            ends = [[*ids, tokenizers.source.end_id] for ids in tokenizers.source.encode_batch(texts)]
            refuse_min_length(config.decoding, ends, None if limit is None else limit - 1)
        if limit is None:
            return
        for tokenizer, texts in ((tokenizers.source, sources), (tokenizers.target, targets)):
            for line, ids in enumerate(tokenizer.encode_batch(texts), start=1):
                if len(ids) + 1 > limit:
                    raise DataError(
                        f"data.validation, pair {line}: {len(ids) + 1} tokens are more than the "
                        f"model.max_length={limit} {config.model.positions} positions; shorten or remove it"
                    )


def _tokenizers(config: TranslationRun, origin: SourceCheckpoint | None) -> TokenizerPair:
    if origin is not None:
        return vocabulary_of(origin)
    return train_tokenizers(config.text, *(partial(_texts, config, side) for side in ("source", "target")))


def _texts(config: TranslationRun, side: Literal["source", "target"]) -> Iterator[str]:
    """Lines that will be dropped as too long teach no vocabulary: a word of a million letters would take minutes."""
    longest = CHARACTERS_PER_TOKEN * config.data.max_length
    return (text for text in read_texts(config.data, side) if len(text) <= longest)
