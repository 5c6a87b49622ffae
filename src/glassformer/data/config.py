"""Settings of data: the files of each task, how they are read and divided, and how batches are made of them."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from glassformer.config import Config
from glassformer.storage.regular_files import MAX_LINE_BYTES

DocumentForm = Literal["file", "line", "blank_line"]
Missing = Literal["refuse", "previous"]
OnCorrupt = Literal["stop", "skip"]


def check_one_validation(validation: Sequence[str], share: float) -> None:
    """Raise ``ValueError``, for a configuration's validator, if both kinds of validation data are configured."""
    if validation and share:
        raise ValueError("validation and validation_share are both set; remove one of them")


def check_positive(name: str) -> AfterValidator:
    """Validator of weights; ``name`` is that of what a weight belongs to."""

    def check(weights: list[float]) -> list[float]:
        if not all(0 < weight < float("inf") for weight in weights):
            raise ValueError(f"every weight is a number above 0; leave a {name} out of train to not see it")
        return weights

    return AfterValidator(check)


def check_weights(weights: Sequence[float], paths: Sequence[str]) -> None:
    """Raise ``ValueError`` unless there is a weight for each path, or none."""
    if weights and len(weights) != len(paths):
        raise ValueError(
            f"weights has {len(weights)} values and train {len(paths)} paths; give one weight a path, or none"
        )


def check_sequence_fits(max_length: int, batch_tokens: int) -> None:
    """Raise ``ValueError`` if the longest sequence has no room in a batch."""
    if max_length > batch_tokens:
        raise ValueError(
            f"a sequence of max_length={max_length} does not fit batch_tokens={batch_tokens}; "
            f"raise it to {max_length} or lower max_length"
        )


class DataConfig(Config):
    """Files of parallel text, filters of its pairs, and batches.

    Every path is a prefix ``P`` (``P.<source>`` and ``P.<target>``), a ``*.tsv`` (first column source, second target,
    further columns are not read), a ``*.jsonl`` (``{"translation": {"en": …, "de": …}}`` or ``{"en": …, "de": …}``) or
    a ``*.parquet`` with such columns. All but Parquet may be compressed: ``.gz`` or ``.zst``.
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
    weights: Annotated[list[float], check_positive("corpus")] = Field(
        default=[], description="times an epoch sees each training corpus; none: each once"
    )
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
    shards: str = Field(default="", description="folder of `glassformer prepare`, which is read in place of `train`")
    on_corrupt: OnCorrupt = "stop"
    """Handling of a shard that is damaged or missing: end the training, or ``skip`` its samples and report it."""
    bucket_window: int = Field(default=16384, ge=1)
    """Samples of shards that are in memory and sorted by length together."""
    max_line_bytes: int = Field(default=MAX_LINE_BYTES, gt=0, description="maximum bytes of a line; more is an error")

    @field_validator("max_length_ratio")
    @classmethod
    def _possible_ratio(cls, ratio: float) -> float:
        if 0 < ratio < 1:
            raise ValueError("longer / shorter is never below 1; give 1 or more, or 0 for no limit")
        return ratio

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_one_validation(self.validation, self.validation_share)
        check_weights(self.weights, self.train)
        if self.alignments and len(self.alignments) != len(self.train):
            raise ValueError(
                f"alignments has {len(self.alignments)} files and train {len(self.train)} paths; "
                "give one file a path, or none"
            )
        if self.alignments and self.shards:
            raise ValueError("shards hold no alignments; leave one of the two settings out")
        if self.source == self.target:
            raise ValueError(f"source and target are both {self.source!r}; give the two sides different codes")
        return self


class SequencesConfig(Config):
    """Files of annotated texts, and the lengths of a sequence and of a batch."""

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
    shards: str = Field(default="", description="folder of `glassformer prepare`, which is read in place of `train`")
    on_corrupt: OnCorrupt = "stop"
    """Handling of a shard that is damaged or missing: end the training, or ``skip`` its samples and report it."""
    bucket_window: int = Field(default=16384, ge=1)
    """Samples of shards that are in memory and sorted by length together."""
    max_line_bytes: int = Field(default=MAX_LINE_BYTES, gt=0, description="maximum bytes of a line; more is an error")

    @model_validator(mode="after")
    def _sequence_fits(self) -> Self:
        check_one_validation(self.validation, self.validation_share)
        check_sequence_fits(self.max_length, self.batch_tokens)
        return self


class LabeledConfig(SequencesConfig):
    """Texts, or pairs of texts, that each have one label.

    Every path is a ``*.csv`` (RFC 4180) or a ``*.tsv`` (no quotes), both with a header, a ``*.jsonl``, each also
    ``.gz`` or ``.zst``, or a ``*.parquet``.
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

    Every path is a ``*.jsonl`` (``{"tokens": [...], "tags": [...]}``), a ``*.parquet`` of such rows, or else a file of
    columns as in CoNLL: a word a line, its tag in the last column, blank lines between sentences. All but Parquet may
    be compressed: ``.gz`` or ``.zst``.
    """

    tokens_key: str = Field(default="tokens", min_length=1, description="JSONL: the key of the words")
    tags_key: str = Field(default="tags", min_length=1, description="JSONL: the key of their tags")


class DocumentsConfig(Config):
    """Files of text of one language, and how they divide into documents.

    Every path is a ``*.jsonl``, a ``*.parquet``, plain text in UTF-8 (``.txt``, ``.py``, …), or a pattern of such files
    (``src/**/*.py``). Text may be compressed: ``.gz`` or ``.zst``. A row of JSONL or Parquet has a document in
    ``text_key``; ``documents`` divides plain text. The line end ``\\r\\n`` is read as ``\\n``.
    """

    train: list[str] = Field(min_length=1, description="paths of training text")
    validation: list[str] = Field(default=[], description="paths of validation text")
    validation_share: float = Field(default=0.0, ge=0, lt=1)
    """Last share of the characters of each training file that is held out when ``validation`` is not given."""
    documents: DocumentForm = "file"
    """Documents of a plain text: the entire file (``file``), each line (``line``), or the parts between blank lines."""
    text_key: str = Field(default="text", min_length=1, description="JSONL: the key of the text")
    weights: Annotated[list[float], check_positive("path")] = Field(default=[])
    """Times an epoch sees each training path. None: all paths are one stream, seen once."""
    cache: str = Field(default="", description="folder of the token ids; empty: the user's cache folder")
    shards: str = Field(default="", description="folder of `glassformer prepare`, which is read in place of `train`")
    on_corrupt: OnCorrupt = "stop"
    """Handling of a shard that is damaged or missing: end the training, or ``skip`` its samples and report it."""
    max_line_bytes: int = Field(default=100 * MAX_LINE_BYTES, gt=0)
    """Maximum bytes of a line; more is an error. Some corpora, such as text8, are one line of 100 MB."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_weights(self.weights, self.train)
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


class MaskedConfig(DocumentsConfig):
    """Text for a masked language model (Devlin et al. 2019, section 3.1): hidden tokens are predicted from the rest."""

    max_length: int = Field(default=128, ge=3)
    """Tokens a sequence, ``[CLS]`` and ``[SEP]`` included; a longer document is cut into equal parts."""
    batch_tokens: int = Field(default=8192, ge=3, description="padded tokens in a batch, at most")
    bucket_noise: float = Field(default=0.02, ge=0, le=1, description="blur of lengths before sorting")
    bucket_window: int = Field(default=16384, ge=1)
    """Samples of shards that are in memory and sorted by length together."""
    masked_share: float = Field(default=0.15, gt=0, le=1, description="tokens that are predicted")
    mask_token_share: float = Field(default=0.8, ge=0, le=1, description="of those, seen as [MASK]")
    random_token_share: float = Field(default=0.1, ge=0, le=1)
    """Share of those that is replaced by a random token; the rest stays as it is."""

    @model_validator(mode="after")
    def _shares_of_one(self) -> Self:
        if (share := self.mask_token_share + self.random_token_share) > 1 + 1e-9:
            raise ValueError(
                f"mask_token_share and random_token_share are {share:g} together, more than 1; lower one of them"
            )
        return self

    @model_validator(mode="after")
    def _sequence_fits(self) -> Self:
        check_sequence_fits(self.max_length, self.batch_tokens)
        return self


class AugmentConfig(Config):
    """Limits of random changes to a training image, drawn anew each epoch. At 0 the image stays bit for bit."""

    rotation: float = Field(0.0, ge=0, le=180, description="degrees either way, at most")
    shift: float = Field(0.0, ge=0, le=1, description="share of the width and of the height either way, at most")
    scale: float = Field(0.0, ge=0, lt=1)
    """The factor of enlargement lies between ``1 - scale`` and ``1 + scale``."""
    shear: float = Field(0.0, ge=0, lt=90, description="degrees that upright lines lean either way, at most")
    border: Literal["edge", "black", "mirror"] = Field("edge", description="what is seen beyond the border")
    flip: float = Field(0.0, ge=0, le=1, description="share of images seen in a mirror, left to right")
    erase: float = Field(0.0, ge=0, le=1)
    """Share of images of which a rectangle is blanked with the mean color (Zhong et al. 2020, arXiv:1708.04896)."""
    mixup: float = Field(0.0, ge=0)
    """Each image is mixed with another by a share from Beta(mixup, mixup), labels alike (Zhang et al. 2018,
    arXiv:1710.09412); 0 does not mix."""

    @property
    def moves(self) -> bool:
        """True if pixels change their places other than by ``flip``."""
        return bool(self.rotation or self.shift or self.scale or self.shear)


class ImageConfig(Config):
    """Files of labeled images, their shape, and batches.

    Every path is one of: a prefix ``P`` of IDX files (``P-images-idx3-ubyte``, ``P-labels-idx1-ubyte``, each also
    ``.gz``) or the file of images itself; a ``.npz`` of the arrays ``images`` and ``labels``; a ``.npy`` of images with
    ``images`` in its name, its labels beside it; a folder of one folder a class, with PNG and JPEG files in it.

    Arrays are not resized. Of a picture file, the largest centered part of the proportions of ``image_size`` is scaled
    to it (bicubic), the right way up as its EXIF data say, transparency ignored.
    """

    train: list[str] = Field(min_length=1, description="paths")
    validation: list[str] = Field(default=[], description="paths")
    test: list[str] = Field(default=[])
    """Paths, which training only checks: what ``glassformer evaluate RUN`` measures on."""
    validation_share: float = Field(0.0, ge=0, lt=1)
    """Share of every class of the training images that is held out for validation when no path is given for it."""
    split_seed: int = Field(1, ge=0, lt=2**63, description="draws which images are held out")
    image_size: tuple[Annotated[int, Field(gt=0)], Annotated[int, Field(gt=0)]] | None = None
    """Height and width in pixels; none: those that all images have."""
    channels: Literal[1, 3] | None = None
    """1 is gray, 3 is red, green, blue; none: those of an array, 3 for picture files."""
    batch_size: int = Field(256, gt=0, description="images in a batch, at most")
    augment: AugmentConfig = AugmentConfig()

    @model_validator(mode="after")
    def _one_validation(self) -> Self:
        check_one_validation(self.validation, self.validation_share)
        return self


class SeriesDataConfig(Config):
    """A table of numbers over time: a CSV file (also ``.gz``) with a header, a line a moment, oldest first.

    ``split`` has the rows for training, validation and test, in order of time: counts, or shares when no number is
    above 1. Rows that remain are not used. Windows of validation and test have their futures in their own part; their
    contexts may begin in the part before, as in published figures (Zhou et al. 2021, arXiv:2012.07436).
    """

    file: str = Field(min_length=1, description="path of the table")
    date: str = Field(default="date", description="column of dates (ISO 8601) or numbers; empty: there is none")
    columns: list[str] = Field(default=[], description="variables, in order; none: all but the date")
    context: int = Field(default=336, gt=0, description="rows the model sees")
    horizon: int = Field(default=96, gt=0, description="rows it forecasts")
    split: tuple[
        Annotated[int | float, Field(gt=0)], Annotated[int | float, Field(ge=0)], Annotated[int | float, Field(ge=0)]
    ] = Field(default=(0.7, 0.1, 0.2), description="rows for training, validation, test; or shares")
    batch_size: int = Field(default=32, gt=0, description="windows in a batch, at most")
    missing: Missing = "refuse"
    """Empty cells, NaN and left-out dates: an error, or the ``previous`` value of the column again, which is read but
    neither learned nor scored as an answer."""

    @field_validator("missing", mode="before")
    @classmethod
    def _no_future(cls, missing: object) -> object:
        if missing == "interpolate":
            raise ValueError("a line to the next known value tells of the future; set it to previous")
        return missing

    @model_validator(mode="after")
    def _possible_split(self) -> Self:
        if self.in_shares and sum(self.split) > 1 + 1e-9:
            raise ValueError(f"the shares in split={list(self.split)} are more than 1 together; lower one")
        if not self.in_shares and any(rows != int(rows) for rows in self.split):
            raise ValueError(f"split={list(self.split)} mixes counts and shares; give whole numbers, or none above 1")
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"columns={self.columns}: a column is named twice; name each once")
        if self.date and self.date in self.columns:
            raise ValueError(f"{self.date!r} is the date and in columns; leave it out of columns, or set date=''")
        return self

    @property
    def in_shares(self) -> bool:
        return max(self.split) <= 1
