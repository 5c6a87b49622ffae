"""Which texts are read, which pairs are kept, and how they are batched."""

from pydantic import Field, field_validator, model_validator

from glassformer.config import Config
from glassformer.data.held_out import check_one_validation
from glassformer.storage.regular_files import MAX_LINE_BYTES


class DataConfig(Config):
    """Where parallel text lies and what becomes of it.

    Every path is a prefix ``P`` (``P.<source>`` and ``P.<target>``, each also ``.gz``), a ``*.tsv[.gz]`` (first column
    source, second target, further columns are not read) or a ``*.jsonl[.gz]`` (``{"translation": {"en": …, "de": …}}``
    or ``{"en": …, "de": …}``).
    """

    source: str = Field(default="source", min_length=1, description="language code: file suffix and JSONL key")
    target: str = Field(default="target", min_length=1, description="language code: file suffix and JSONL key")
    train: list[str] = Field(min_length=1, description="paths, one a corpus")
    validation: list[str] = Field(default=[], description="paths, read as they are")
    validation_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of the training pairs held out if ``validation`` is empty. A hash of the source text selects them, so that
    pairs with the same source stay together."""
    alignments: list[str] = Field(
        default=[], description="Pharaoh files (`0-0 1-2`), one a path of train; they guide a head"
    )
    weights: list[float] = Field(default=[], description="times an epoch sees each training corpus; none: each once")
    max_length: int = Field(
        default=256, ge=2, description="tokens a side as the model sees them, end of sentence included"
    )
    max_length_ratio: float = Field(default=0.0, ge=0, description="longer / shorter side; 0: no limit")
    drop_duplicates: bool = Field(
        default=False, description="keep only the first of pairs with the same text, per corpus"
    )
    batch_tokens: int = Field(default=4096, ge=2, description="padded tokens a side in a batch, at most")
    row_tokens: int = Field(
        default=64, ge=0, description="width of a row that short sentences share; 0: a row a sentence"
    )
    bucket_noise: float = Field(
        default=0.02, ge=0, le=1, description="blur of lengths before sorting; with row_tokens=0"
    )
    cache: str = Field(default="", description="folder of the token ids; empty: the user's cache folder")
    max_line_bytes: int = Field(default=MAX_LINE_BYTES, gt=0, description="maximum bytes of a line; more is an error")

    @field_validator("max_length_ratio")
    @classmethod
    def _possible_ratio(cls, ratio: float) -> float:
        if 0 < ratio < 1:
            raise ValueError("longer / shorter is never below 1; give 1 or more, or 0 for no limit")
        return ratio

    @field_validator("weights")
    @classmethod
    def _positive_weights(cls, weights: list[float]) -> list[float]:
        if not all(0 < weight < float("inf") for weight in weights):
            raise ValueError("every weight is a number above 0; leave a corpus out of train to not see it")
        return weights

    @model_validator(mode="after")
    def _weight_for_every_corpus(self) -> "DataConfig":
        check_one_validation(self.validation, self.validation_share)
        if self.weights and len(self.weights) != len(self.train):
            raise ValueError(
                f"weights has {len(self.weights)} values and train {len(self.train)} paths; "
                "give one weight a path, or none"
            )
        if self.alignments and len(self.alignments) != len(self.train):
            raise ValueError(
                f"alignments has {len(self.alignments)} files and train {len(self.train)} paths; "
                "give one file a path, or none"
            )
        if self.source == self.target:
            raise ValueError(f"source and target are both {self.source!r}; give the two sides different codes")
        return self
