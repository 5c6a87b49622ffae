"""Which documents are read as one stream of text, and how the stream is cut for a model that continues text."""

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from glassformer.config import Config
from glassformer.data.held_out import check_one_validation
from glassformer.storage.regular_files import MAX_LINE_BYTES

DocumentForm = Literal["file", "line", "blank_line"]


class DocumentsConfig(Config):
    """Where text of one language lies, and what a document is in it.

    Every path is a ``*.jsonl[.gz]``, plain text in UTF-8 (``.txt``, ``.py``, …, also ``.gz``), or a pattern of such
    files (``src/**/*.py``). JSONL has one object per line, with a document in ``text_key``; ``documents`` divides plain
    text. The line end ``\\r\\n`` is read as ``\\n``.
    """

    train: list[str] = Field(min_length=1, description="paths of training text")
    validation: list[str] = Field(default=[], description="paths of validation text")
    validation_share: float = Field(default=0.0, ge=0, lt=1)
    """Last share of the characters of each training file that is held out when ``validation`` is not given."""
    documents: DocumentForm = "file"
    """Documents of a plain text: the entire file (``file``), each line (``line``), or the parts between blank lines."""
    text_key: str = Field(default="text", min_length=1, description="JSONL: the key of the text")
    weights: list[float] = Field(default=[])
    """Times an epoch sees each training path. None: all paths are one stream, seen once."""
    cache: str = Field(default="", description="folder of the token ids; empty: the user's cache folder")
    max_line_bytes: int = Field(default=100 * MAX_LINE_BYTES, gt=0)
    """Maximum bytes of a line; more is an error. Some corpora, such as text8, are one line of 100 MB."""

    @field_validator("weights")
    @classmethod
    def _positive_weights(cls, weights: list[float]) -> list[float]:
        if not all(0 < weight < float("inf") for weight in weights):
            raise ValueError("every weight is a number above 0; leave a path out of train to not see it")
        return weights

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.weights and len(self.weights) != len(self.train):
            raise ValueError(
                f"weights has {len(self.weights)} values and train {len(self.train)} paths; "
                "give one weight a path, or none"
            )
        check_one_validation(self.validation, self.validation_share)
        return self


class StreamConfig(DocumentsConfig):
    """Text for a language model: windows of ``context`` tokens, each token predicted from those before it."""

    context: int = Field(default=256, ge=1, description="tokens a window")
    batch_size: int = Field(default=0, ge=0, description="windows a batch; 0: as many as batch_tokens holds")
    batch_tokens: int = Field(default=16384, ge=1, description="tokens a batch, at most; with batch_size=0")
    within_documents: bool = False
    """Attention stays within a document, and positions count from its first token."""

    @property
    def rows(self) -> int:
        """Windows a batch, at most."""
        return self.batch_size or self.batch_tokens // self.context

    @model_validator(mode="after")
    def _window_fits(self) -> Self:
        if not self.rows:
            raise ValueError(
                f"a window of context={self.context} does not fit batch_tokens={self.batch_tokens}; "
                f"raise it to {self.context} or lower context"
            )
        return self
