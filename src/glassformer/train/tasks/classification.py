"""Naming the class of a text (Devlin et al. 2019, section 4.1), from scratch or from a pre-trained encoder."""

from functools import partial
from typing import Any, Literal, Self

from pydantic import model_validator

from glassformer.data.account import Account
from glassformer.data.labelled import LabelledBatch, LabelledBatches, labelled_texts, prepare_labelled
from glassformer.data.labelled_config import LabelledConfig
from glassformer.models.bert import BERT, BERTConfig
from glassformer.text import TextConfig
from glassformer.train.config import AccuracyValidation, PlainTrainConfig, RunConfig
from glassformer.train.task import Origin
from glassformer.train.tasks.encoder import EncoderTask, Named, NamingConfig
from glassformer.train.tasks.vocabulary import MARKS, check_length, check_no_dropout, one_vocabulary


class ClassificationRun(RunConfig):
    """Everything one training of a classifier of texts depends on; ``model.masked_tokens`` is false by default."""

    task: Literal["classification"] = "classification"
    model: NamingConfig = BERTConfig(masked_tokens=False)
    text: TextConfig = TextConfig()
    data: LabelledConfig
    train: PlainTrainConfig = PlainTrainConfig()
    validation: AccuracyValidation = AccuracyValidation()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_length(self.data.max_length, self.model.max_length)
        check_no_dropout(self.text)
        return self


class Classification(EncoderTask):
    """Labelled texts read, accounted for and batched by length."""

    unit = "texts"
    head, stored = "n_classes", "labels"

    def __init__(self, config: ClassificationRun, origin: Origin | None = None):
        data = config.data
        tokenizers = one_vocabulary(config.text, partial(labelled_texts, data), origin, MARKS)
        tokenizer, held_out, accounts = tokenizers.source, None, list[Account]()
        examples = prepare_labelled(data, data.train, tokenizer)
        if data.validation:
            others = prepare_labelled(data, data.validation, tokenizer, examples.labels)
            held_out, accounts = LabelledBatches(others, tokenizer, data, seed=0), [others.account]
        batches = LabelledBatches(examples, tokenizer, data, config.train.seed)
        read = [examples.account], accounts
        super().__init__(config, tokenizers, read, (batches, held_out), examples.labels)

    def texts(self, batch: LabelledBatch) -> list[Any]:
        labels = [self.names[label] for label in batch.labels.tolist()]
        return [list(pair) for pair in zip(super().texts(batch), labels, strict=True)]

    def _named(self, model: BERT, batch: LabelledBatch) -> Named:
        assert model.classes is not None
        return model.classes(model.hidden(batch.tokens, batch.mask, batch.segments)), batch.labels
