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
from glassformer.tasks import TASKS, resolve_name
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
    if not TASKS[config.task].planned_batch:
        known = ", ".join(name for name, record in TASKS.items() if record.planned_batch)
        raise ConfigError(f"task={config.task}: its batches have no shape without data; known: {known}")
    shape: BatchShape = resolve_name(TASKS[config.task].planned_batch)(config.data, model, length)
    return shape


def translation_batch(data: Any, model: Any, length: int) -> BatchShape:
    """Rows of ``data.row_tokens``, or a sentence a row."""
    packed = bool(data.row_tokens) and model.shares_rows
    width = min(data.row_tokens, data.batch_tokens) if packed else min(length or SENTENCE_TOKENS, data.max_length)
    sentence = min(length or SENTENCE_TOKENS, width)

    def make(rows: int, device: torch.device) -> Batch:
        tokens = torch.ones(rows, width, dtype=torch.long, device=device)
        sentences = (torch.arange(width, device=device) // sentence + 1).expand(rows, width).contiguous()
        examples = np.arange(rows * -(-width // sentence))
        return Batch(tokens, tokens, tokens, sentences, sentences, rows * width, rows * width, examples)

    return BatchShape(_rows(data.batch_tokens, width), "rows" if packed else "sentences", (width, width), width, make)


def window_batch(data: Any, model: Any, length: int) -> BatchShape:
    """Windows of a language model."""

    def make(rows: int, device: torch.device) -> WindowBatch:
        tokens = _ids(rows, data.context, device)
        return WindowBatch(tokens, tokens, torch.ones_like(tokens) if data.within_documents else None)

    return BatchShape(data.rows, "windows", (data.context,), data.context, make)


def masked_batch(data: Any, model: Any, length: int) -> BatchShape:
    """Texts with the configured share of hidden tokens."""
    width = min(length or data.max_length, data.max_length)
    masked = max(1, round(data.masked_share * width))

    def make(rows: int, device: torch.device) -> MaskedBatch:
        tokens = _ids(rows, width, device)
        predicted = (torch.arange(width, device=device) < masked).expand(rows, width).contiguous()
        mask, segments = torch.ones_like(tokens, dtype=torch.bool), torch.zeros_like(tokens)
        return MaskedBatch(tokens, mask, tokens, predicted, segments, rows * width, rows * masked)

    return BatchShape(_rows(data.batch_tokens, width), "sequences", (width,), masked, make)


def labeled_batch(data: Any, model: Any, length: int) -> BatchShape:
    """Texts with a label each."""
    width = min(length or data.max_length, data.max_length)

    def make(rows: int, device: torch.device) -> LabeledBatch:
        tokens = _ids(rows, width, device)
        mask, segments = torch.ones_like(tokens, dtype=torch.bool), torch.zeros_like(tokens)
        labels = torch.zeros(rows, dtype=torch.long, device=device)
        return LabeledBatch(tokens, mask, segments, labels, rows * width, np.arange(rows))

    return BatchShape(_rows(data.batch_tokens, width), "texts", (width,), 1, make)


def tagged_batch(data: Any, model: Any, length: int) -> BatchShape:
    """Sentences with a tag a token."""
    width = min(length or data.max_length, data.max_length)

    def make(rows: int, device: torch.device) -> TaggedBatch:
        tokens = _ids(rows, width, device)
        mask, zeros = torch.ones_like(tokens, dtype=torch.bool), torch.zeros_like(tokens)
        return TaggedBatch(tokens, mask, zeros, zeros, mask, rows * width, rows * width, np.arange(rows))

    return BatchShape(_rows(data.batch_tokens, width), "sentences", (width,), width, make)


def image_batch(data: Any, model: Any, length: int) -> BatchShape:
    """Images with a class each; a row has a position for each patch and the class token."""
    shape = model.n_channels, *model.image_size

    def make(rows: int, device: torch.device) -> ImageBatch:
        labels = torch.zeros(rows, dtype=torch.long, device=device)
        return ImageBatch(torch.zeros(rows, *shape, device=device), labels, np.arange(rows))

    return BatchShape(data.batch_size, "images", (1 + model.n_patches,), 1, make)


def series_batch(data: Any, model: Any, length: int) -> BatchShape:
    """Windows of a series; every variable is a row of the model."""
    variables = model.n_variables

    def make(rows: int, device: torch.device) -> SeriesBatch:
        context, future = (torch.zeros(rows, n, variables, device=device) for n in (data.context, data.horizon))
        return SeriesBatch(context, future, np.arange(rows))

    return BatchShape(data.batch_size, "windows", (model.n_patches * variables,), data.horizon * variables, make)


def _ids(rows: int, width: int, device: torch.device) -> Tensor:
    return torch.ones(rows, width, dtype=torch.long, device=device)


def _rows(batch_tokens: int, width: int) -> int:
    if width > batch_tokens:
        raise ConfigError(f"a row of {width} tokens does not fit data.batch_tokens={batch_tokens}; raise it to {width}")
    return batch_tokens // width
