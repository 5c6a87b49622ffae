"""Shared parts of encoder tasks: one vocabulary, batches by length, and labels."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import torch
from jaxtyping import Float, Int
from pydantic import BeforeValidator
from torch import Tensor

from glassformer.data.read_report import ReadReport
from glassformer.data.shards.samples import Samples
from glassformer.data.shards.shard_batches import open_shards, sorted_names
from glassformer.models.bert import BERT, BERTConfig
from glassformer.text import TokenizerPair
from glassformer.text.config import MARKS
from glassformer.train.loss import Loss, cross_entropy
from glassformer.train.task import (
    BatchSource,
    CheckpointMetadata,
    Report,
    SourceCheckpoint,
    ValidationReport,
    sized_by_data,
)
from glassformer.train.tasks.vocabulary import one_vocabulary, vocabulary_of_shards, with_vocabulary

Labeled = tuple[Float[Tensor, "examples classes"], Int[Tensor, " examples"]]


def _own_head(model: Any) -> Any:
    return {"masked_tokens": False, **model} if isinstance(model, dict) else model


LabelingConfig = Annotated[BERTConfig, BeforeValidator(_own_head)]
"""Default of tasks that do not train the head for masked tokens: no such head."""


class EncoderTask(ABC):
    """A subclass reads its data, and gives the logits of what is to be named."""

    head: ClassVar[str] = ""
    """The number in the model's configuration that is that of the ``names``."""
    stored: ClassVar[str] = ""
    """The name of the ``names`` in the checkpoint."""

    def __init__(
        self,
        config: Any,
        tokenizers: TokenizerPair,
        accounts: tuple[list[ReadReport], list[ReadReport]],
        data: tuple[Any, Any | None],
        names: tuple[str, ...] = (),
    ):
        """``accounts`` and ``data``, the batches, are those of training and of what is held out for validation."""
        self.config, self.tokenizers, self.names = config, tokenizers, names
        self.batches, self._held_out = data
        for account in accounts[0]:
            account.check_unknown(config.text, config.train.start_from)
        self.accounts: Sequence[Report] = [*accounts[0], *map(ValidationReport, accounts[1])]

    @property
    def limit(self) -> str:
        return f"data.batch_tokens={self.config.data.batch_tokens}"

    @property
    def validates(self) -> bool:
        return self._held_out is not None

    def new_model(self) -> BERT:
        head = {self.head: len(self.names)} if self.head else {}
        values = sized_by_data(self.config.model, head, "data")
        return BERT(BERTConfig.parse(with_vocabulary(values, self.tokenizers.source.vocab_size), "model"))

    def loss(self, model: BERT, batch: Any) -> Loss:
        return cross_entropy(*self._labeled(model, batch), self.config.train.label_smoothing)

    @torch.inference_mode()
    def validate(self, model: BERT) -> dict[str, float]:
        assert self._held_out is not None
        device = model.embedding.weight.device
        return naming_scores(self._labeled(model, batch.to(device)) for batch in self._held_out.whole_epoch())

    def metadata(self) -> CheckpointMetadata:
        values = {"max_length": self.config.data.max_length, "tokenizer": self.tokenizers.fingerprint}
        names = {self.stored: list(self.names)} if self.stored else {}
        return CheckpointMetadata({**names, **values}, self.tokenizers.to_json())

    def texts(self, batch: Any) -> list[Any]:
        return [self.tokenizers.source.decode(row) for row in batch.tokens.tolist()]

    @abstractmethod
    def _labeled(self, model: BERT, batch: Any) -> Labeled:
        """Logits, and what they should name."""


@dataclass(frozen=True)
class Readers:
    """Readers of one kind of data: texts for the vocabulary, examples, their batches, and the same from shards."""

    texts: Callable[[Any], Iterator[str]]
    prepare: Callable[..., Any]
    batches: Callable[..., Any]
    samples: type[Samples[Any]]
    shards: Callable[..., Any]


class ClassificationTask(EncoderTask):
    """Task with labeled examples: the label of a text, or the tags of its words."""

    reading: ClassVar[Readers]

    def __init__(self, config: Any, origin: SourceCheckpoint | None = None):
        data, read, seed = config.data, self.reading, config.train.seed
        shards = open_shards(config.task, read.samples, data) if data.shards else None
        tokenizers = vocabulary_of_shards(shards, config, origin) if shards else self.vocabulary(config, origin)
        tokenizer, held_out, accounts = tokenizers.source, None, list[ReadReport]()
        share = data.validation_share
        batches: BatchSource
        if shards:
            names, account = sorted_names(shards.index), shards.index.account
            batches = read.shards(shards, tokenizer, data, seed)
        else:
            examples = read.prepare(data, data.train, tokenizer, part="train" if share else "all")
            names, account = getattr(examples, self.stored), examples.account
            batches = read.batches(examples, tokenizer, data, seed)
        if data.validation or share:
            paths, part = (data.train, "held_out") if share else (data.validation, "all")
            others = read.prepare(data, paths, tokenizer, names, part)
            held_out, accounts = read.batches(others, tokenizer, data, seed=0), [others.account]
        super().__init__(config, tokenizers, ([account], accounts), (batches, held_out), names)

    @classmethod
    def vocabulary(cls, config: Any, origin: SourceCheckpoint | None = None) -> TokenizerPair:
        """The tokenizer of ``origin``, or one learned from the training texts."""
        return one_vocabulary(config.text, partial(cls.reading.texts, config.data), origin, MARKS)


def naming_scores(labeled: Iterable[Labeled]) -> dict[str, float]:
    """The mean negative log-likelihood in nats, and the share named rightly, over all batches."""
    nll, right, examples = 0.0, 0, 0
    for logits, labels in labeled:
        nll += cross_entropy(logits, labels, 0.0).loss.item()
        right += int((logits.argmax(-1) == labels).sum())
        examples += len(labels)
    return {"nll": nll / examples, "accuracy": right / examples}
