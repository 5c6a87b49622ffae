"""Batches with the shapes that a configuration decides, without its data: full rows of arbitrary token ids."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.data import Batch
from glassformer.data.images import ImageBatch
from glassformer.data.masking import MaskedBatch
from glassformer.data.text_classification import LabeledBatch
from glassformer.data.time_series import SeriesBatch
from glassformer.data.token_classification import TaggedBatch
from glassformer.data.windows import WindowBatch
from glassformer.errors import ConfigError
from glassformer.train.config import RunConfig

SENTENCE_TOKENS = 32
"""Tokens of a sentence where the data decide it; WMT 2014 English-German has about 30 subwords a sentence."""


@dataclass(frozen=True)
class BatchShape:
    """Rows of a full batch, and their tokens; ``make`` builds one of any number of rows on a device."""

    rows: int
    unit: str
    """Name of a row, in plural."""
    tokens: tuple[int, ...]
    """Positions of a row on each side: one number, or source and target."""
    targets: int
    """Predictions of a row."""
    make: Callable[[int, torch.device], Any]


def batch_shape(config: RunConfig, model: Any, length: int = 0) -> BatchShape:
    """The shape of a full batch of ``config``, with ``model`` its parsed configuration of the model.

    ``length``: tokens of a row where the data decide them; 0 is ``SENTENCE_TOKENS`` for translation with a row a
    sentence, and ``data.max_length`` for encoders.
    """
    return SHAPES[config.task](config.data, model, length)


def _translation(data: Any, model: Any, length: int) -> BatchShape:
    packed = bool(data.row_tokens) and model.kind != "recurrent"
    width = min(data.row_tokens, data.batch_tokens) if packed else min(length or SENTENCE_TOKENS, data.max_length)
    sentence = min(length or SENTENCE_TOKENS, width)

    def make(rows: int, device: torch.device) -> Batch:
        tokens = torch.ones(rows, width, dtype=torch.long, device=device)
        sentences = (torch.arange(width, device=device) // sentence + 1).expand(rows, width).contiguous()
        examples = np.arange(rows * -(-width // sentence))
        return Batch(tokens, tokens, tokens, sentences, sentences, rows * width, rows * width, examples)

    return BatchShape(_rows(data.batch_tokens, width), "rows" if packed else "sentences", (width, width), width, make)


def _language(data: Any, model: Any, length: int) -> BatchShape:
    def make(rows: int, device: torch.device) -> WindowBatch:
        tokens = _ids(rows, data.context, device)
        return WindowBatch(tokens, tokens, torch.ones_like(tokens) if data.within_documents else None)

    return BatchShape(data.rows, "windows", (data.context,), data.context, make)


def _masked(data: Any, model: Any, length: int) -> BatchShape:
    width = min(length or data.max_length, data.max_length)
    masked = max(1, round(data.masked_share * width))

    def make(rows: int, device: torch.device) -> MaskedBatch:
        tokens = _ids(rows, width, device)
        predicted = (torch.arange(width, device=device) < masked).expand(rows, width).contiguous()
        mask, segments = torch.ones_like(tokens, dtype=torch.bool), torch.zeros_like(tokens)
        return MaskedBatch(tokens, mask, tokens, predicted, segments, rows * width, rows * masked)

    return BatchShape(_rows(data.batch_tokens, width), "sequences", (width,), masked, make)


def _classification(data: Any, model: Any, length: int) -> BatchShape:
    width = min(length or data.max_length, data.max_length)

    def make(rows: int, device: torch.device) -> LabeledBatch:
        tokens = _ids(rows, width, device)
        mask, segments = torch.ones_like(tokens, dtype=torch.bool), torch.zeros_like(tokens)
        labels = torch.zeros(rows, dtype=torch.long, device=device)
        return LabeledBatch(tokens, mask, segments, labels, rows * width, np.arange(rows))

    return BatchShape(_rows(data.batch_tokens, width), "texts", (width,), 1, make)


def _tagging(data: Any, model: Any, length: int) -> BatchShape:
    width = min(length or data.max_length, data.max_length)

    def make(rows: int, device: torch.device) -> TaggedBatch:
        tokens = _ids(rows, width, device)
        mask, zeros = torch.ones_like(tokens, dtype=torch.bool), torch.zeros_like(tokens)
        return TaggedBatch(tokens, mask, zeros, zeros, mask, rows * width, rows * width, np.arange(rows))

    return BatchShape(_rows(data.batch_tokens, width), "sentences", (width,), width, make)


def _images(data: Any, model: Any, length: int) -> BatchShape:
    shape = model.n_channels, *model.image_size

    def make(rows: int, device: torch.device) -> ImageBatch:
        labels = torch.zeros(rows, dtype=torch.long, device=device)
        return ImageBatch(torch.zeros(rows, *shape, device=device), labels, np.arange(rows))

    return BatchShape(data.batch_size, "images", (1 + model.n_patches,), 1, make)


def _forecasting(data: Any, model: Any, length: int) -> BatchShape:
    variables = model.n_variables

    def make(rows: int, device: torch.device) -> SeriesBatch:
        context, future = (torch.zeros(rows, n, variables, device=device) for n in (data.context, data.horizon))
        return SeriesBatch(context, future, np.arange(rows))

    return BatchShape(data.batch_size, "windows", (model.n_patches * variables,), data.horizon * variables, make)


SHAPES: dict[str, Callable[[Any, Any, int], BatchShape]] = {
    "translation": _translation,
    "language": _language,
    "masked": _masked,
    "classification": _classification,
    "tagging": _tagging,
    "images": _images,
    "forecasting": _forecasting,
}
"""Shape of a batch, by task."""


def _ids(rows: int, width: int, device: torch.device) -> Tensor:
    return torch.ones(rows, width, dtype=torch.long, device=device)


def _rows(batch_tokens: int, width: int) -> int:
    if width > batch_tokens:
        raise ConfigError(f"a row of {width} tokens does not fit data.batch_tokens={batch_tokens}; raise it to {width}")
    return batch_tokens // width
