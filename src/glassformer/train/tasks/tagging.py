"""A tag for every word (Devlin et al. 2019, section 5.3), from scratch or from a pre-trained encoder."""

from functools import partial
from typing import Literal, Self

from pydantic import model_validator

from glassformer.data.account import Account
from glassformer.data.labelled_config import TaggedConfig
from glassformer.data.tagged import TaggedBatch, TaggedBatches, prepare_tagged, tagged_texts
from glassformer.models.bert import BERT, BERTConfig
from glassformer.text import TextConfig
from glassformer.train.config import AccuracyValidation, PlainTrainConfig, RunConfig
from glassformer.train.task import Origin
from glassformer.train.tasks.encoder import EncoderTask, Named, NamingConfig
from glassformer.train.tasks.vocabulary import MARKS, check_length, check_no_dropout, one_vocabulary


class TaggingRun(RunConfig):
    """Everything one training of a tagger depends on; ``model.masked_tokens`` is false by default."""

    task: Literal["tagging"] = "tagging"
    model: NamingConfig = BERTConfig(masked_tokens=False)
    text: TextConfig = TextConfig()
    data: TaggedConfig
    train: PlainTrainConfig = PlainTrainConfig()
    validation: AccuracyValidation = AccuracyValidation()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_length(self.data.max_length, self.model.max_length)
        check_no_dropout(self.text)
        return self


class Tagging(EncoderTask):
    """Tagged sentences read, accounted for and batched by length; the tag stands on the first piece of a word."""

    unit = "words"
    head, stored = "n_tags", "tags"

    def __init__(self, config: TaggingRun, origin: Origin | None = None):
        data = config.data
        tokenizers = one_vocabulary(config.text, partial(tagged_texts, data), origin, MARKS)
        tokenizer, held_out, accounts = tokenizers.source, None, list[Account]()
        examples = prepare_tagged(data, data.train, tokenizer)
        if data.validation:
            others = prepare_tagged(data, data.validation, tokenizer, examples.tags)
            held_out, accounts = TaggedBatches(others, tokenizer, data, seed=0), [others.account]
        batches = TaggedBatches(examples, tokenizer, data, config.train.seed)
        read = [examples.account], accounts
        super().__init__(config, tokenizers, read, (batches, held_out), examples.tags)

    def _named(self, model: BERT, batch: TaggedBatch) -> Named:
        assert model.tags is not None
        words = model.hidden(batch.tokens, batch.mask, batch.segments)[batch.word_starts]
        return model.tags(words[None])[0], batch.tags[batch.word_starts]
