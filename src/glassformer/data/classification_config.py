"""Which labeled or tagged texts are read, and how they are batched."""

from typing import Self

from pydantic import Field, model_validator

from glassformer.config import Config
from glassformer.data.held_out import check_one_validation
from glassformer.storage.regular_files import MAX_LINE_BYTES


class SequencesConfig(Config):
    """Where annotated texts lie, and how long a sequence and a batch may be."""

    train: list[str] = Field(min_length=1, description="paths of training examples")
    validation: list[str] = Field(default=[], description="paths of validation examples")
    validation_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of the training examples held out if ``validation`` is empty. A hash of the text selects them, so that
    equal texts stay together."""
    test: list[str] = Field(default=[])
    """Paths of test examples, which training does not read: what ``glassformer evaluate RUN`` measures on."""
    max_length: int = Field(default=128, ge=5)
    """Tokens a sequence, ``[CLS]`` and ``[SEP]`` included; what is longer loses its end."""
    batch_tokens: int = Field(default=4096, ge=5, description="padded tokens in a batch, at most")
    bucket_noise: float = Field(default=0.02, ge=0, le=1, description="blur of lengths before sorting")
    max_line_bytes: int = Field(default=MAX_LINE_BYTES, gt=0, description="maximum bytes of a line; more is an error")

    @model_validator(mode="after")
    def _sequence_fits(self) -> Self:
        check_one_validation(self.validation, self.validation_share)
        if self.max_length > self.batch_tokens:
            raise ValueError(
                f"a sequence of max_length={self.max_length} does not fit batch_tokens={self.batch_tokens}; "
                f"raise it to {self.max_length} or lower max_length"
            )
        return self


class LabeledConfig(SequencesConfig):
    """Texts, or pairs of texts, that each have one label.

    Every path is a ``*.csv`` (RFC 4180) or a ``*.tsv`` (no quotes), both with a header, or a ``*.jsonl``; each also
    ``.gz``.
    """

    text_column: str = Field(default="text", min_length=1, description="column or key of the text")
    pair_column: str = Field(default="", description="column or key of the second text; empty: there is none")
    label_column: str = Field(default="label", min_length=1, description="column or key of the label")

    @model_validator(mode="after")
    def _different_columns(self) -> Self:
        columns = [self.text_column, self.label_column, *([self.pair_column] if self.pair_column else [])]
        if len(set(columns)) < len(columns):
            raise ValueError(f"the columns {', '.join(columns)} are not different; give each its own")
        return self


class TaggedConfig(SequencesConfig):
    """Sentences in which every word has a tag.

    Every path is a ``*.jsonl`` (``{"tokens": [...], "tags": [...]}``), or else a file of columns as in CoNLL: a word a
    line, its tag in the last column, blank lines between sentences; each also ``.gz``.
    """

    tokens_key: str = Field(default="tokens", min_length=1, description="JSONL: the key of the words")
    tags_key: str = Field(default="tags", min_length=1, description="JSONL: the key of their tags")
