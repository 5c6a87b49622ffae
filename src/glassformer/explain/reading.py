"""Texts, images and series as a model of one stack is given them, traced."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.data.images import ImageFormat
from glassformer.data.sequences import Frame, special_id
from glassformer.data.time_series import SeriesFormat
from glassformer.errors import ConfigError, DataError
from glassformer.explain.examined import token_labels
from glassformer.explain.figures.svg import shown
from glassformer.explain.stack_example import ImageExample, SeriesExample, TextExample
from glassformer.explain.trace import Trace, trace
from glassformer.models.bert import BERT
from glassformer.models.gpt import GPT
from glassformer.models.series import SeriesModel
from glassformer.models.vit import ViT
from glassformer.predict.filler import MASK, encode_with_masks
from glassformer.predict.memory import fitting_memory
from glassformer.taps import Edit
from glassformer.text.tokenizer import Tokenizer

Edits = Mapping[str, Edit] | None


@torch.no_grad()
def examine_continuation(
    model: GPT, tokenizer: Tokenizer, text: str, keep: str = "*", edits: Edits = None
) -> TextExample:
    """``text`` through GPT, and the token that it holds likeliest to follow."""
    ids = tokenizer.encode(_given(text))
    with fitting_memory(len(ids), _bytes(model, len(ids))), trace(model, keep, edits) as t:
        logits = model(_row(model, ids))
    best = int(logits[0, -1].argmax())
    said = tokenizer.decode([best]).strip() or shown(tokenizer.tokens([best])[0])
    labels = token_labels(tokenizer, ids, tokenizer.unknown(text))
    return TextExample(
        model, t, text, "goes on with", said, labels, "language", tokenizer, ids, [0] * len(ids), asked=(len(ids) - 1,)
    )


def examine_masked(model: BERT, tokenizer: Tokenizer, text: str, keep: str = "*", edits: Edits = None) -> TextExample:
    """``text`` through BERT; each ``[MASK]`` in it is a hidden word, for which it names the likeliest."""
    if MASK not in _given(text):
        raise DataError(f"there is no {MASK} in the text; write one where a word is to be found")
    mask, ids = special_id(tokenizer, MASK), encode_with_masks(tokenizer, text)
    t, (tokens, segments), logits = _encoded(model, tokenizer, [ids], (keep, edits))
    hidden = tuple(place for place, i in enumerate(tokens) if i == mask)
    filled = [int(logits[0, place].argmax()) if place in hidden else i for place, i in enumerate(tokens)]
    said, unknown = tokenizer.decode(filled), tokenizer.unknown(text.replace(MASK, " "))
    labels = token_labels(tokenizer, tokens, unknown)
    return TextExample(
        model, t, text, "is filled in as", said, labels, "masked", tokenizer, tokens, segments, asked=hidden
    )


def examine_class(
    model: BERT, tokenizer: Tokenizer, texts: Sequence[str], names: Sequence[str], keep: str = "*", edits: Edits = None
) -> TextExample:
    """A text, or a pair of texts, through BERT, and the class that it belongs to."""
    parts = [tokenizer.encode(_given(text)) for text in texts]
    t, (tokens, segments), logits = _encoded(model, tokenizer, parts, (keep, edits), "classes")
    said, unknown = names[int(logits[0].argmax())], [part for text in texts for part in tokenizer.unknown(text)]
    labels = token_labels(tokenizer, tokens, unknown)
    read = " · ".join(texts)
    return TextExample(
        model, t, read, "is of the class", said, labels, "classification", tokenizer, tokens, segments, tuple(names)
    )


def examine_tags(
    model: BERT, tokenizer: Tokenizer, text: str, names: Sequence[str], keep: str = "*", edits: Edits = None
) -> TextExample:
    """A sentence through BERT, and a tag for each of its words, at the word's first piece."""
    pieces = [tokenizer.encode(word) for word in _given(text).split()]
    ids = [i for word in pieces for i in word]
    t, (tokens, segments), logits = _encoded(model, tokenizer, [ids], (keep, edits), "tags")
    starts = tuple(1 + sum(map(len, pieces[:number])) for number, word in enumerate(pieces) if word)
    said = " ".join(names[int(logits[0, place].argmax())] for place in starts)
    labels = token_labels(tokenizer, tokens, [part for word in text.split() for part in tokenizer.unknown(word)])
    return TextExample(
        model, t, text, "is tagged", said, labels, "tagging", tokenizer, tokens, segments, tuple(names), starts
    )


@torch.no_grad()
def examine_image(
    model: ViT, format: ImageFormat, file: str | Path, keep: str = "*", edits: Edits = None
) -> ImageExample:
    """A picture file through a Vision Transformer, and the class that it belongs to."""
    image = format.load([Path(file)])
    return examine_pixels(model, format, image, Path(file).name, keep, edits)


@torch.no_grad()
def examine_pixels(
    model: ViT, format: ImageFormat, image: Tensor, name: str, keep: str = "*", edits: Edits = None
) -> ImageExample:
    """``image`` is normalized, ``[1, channel, row, column]``, as ``format`` gives it."""
    weight = model.output_projection.weight
    with (
        fitting_memory(model.config.n_patches + 1, _bytes(model, model.config.n_patches)),
        trace(model, keep, edits) as t,
    ):
        logits = model(image.to(weight))
    mean, deviation = (torch.tensor(values)[:, None, None] for values in (format.mean, format.deviation))
    pixels = (image[0].cpu() * deviation + mean).clamp(0, 1).permute(1, 2, 0).double().numpy()
    across = model.config.image_size[1] // model.config.patch_size
    places = [f"{number // across},{number % across}" for number in range(model.config.n_patches)]
    said = format.classes[int(logits[0].argmax())]
    return ImageExample(model, t, name, "is of the class", said, ["[CLS]", *places], pixels, tuple(format.classes))


@torch.no_grad()
def examine_series(
    model: SeriesModel, format: SeriesFormat, values: NDArray[np.float64], keep: str = "*", edits: Edits = None
) -> SeriesExample:
    """The last ``context`` rows of ``values`` (in their own units, ``[time, variable]``), and what follows them."""
    config = model.config
    if len(values) < config.context:
        raise DataError(f"the series has {len(values)} rows and the model sees {config.context}; give at least those")
    seen = format.standardize(np.asarray(values, np.float64)[-config.context :])
    with trace(model, keep, edits) as t:
        given = torch.from_numpy(seen).to(model.forecast.weight)[None]
        forecast = model(given)[0].double().cpu().numpy()
    length, stride = config.patch_length, config.patch_stride
    labels = [f"{start}–{start + length - 1}" for start in range(0, stride * config.n_patches, stride)]
    columns = tuple(format.columns)
    read = f"{config.context} steps of {', '.join(columns)}"
    said = f"{config.horizon} steps more"
    return SeriesExample(
        model, t, read, "is followed by", said, labels, given[0].double().cpu().numpy(), forecast, columns
    )


@torch.no_grad()
def _encoded(
    model: BERT, tokenizer: Tokenizer, parts: Sequence[Sequence[int]], how: tuple[str, Edits], head: str = ""
) -> tuple[Trace, tuple[list[int], list[int]], Tensor]:
    """The trace, tokens and segments, and what the head says: that of hidden tokens, ``classes`` or ``tags``."""
    chosen = getattr(model, head) if head else model.output_projection
    if chosen is None:
        raise ConfigError(f"this model has no head for {head or 'hidden tokens'}; train one for that task")
    rows, _, segments = Frame.of(tokenizer).rows([[np.array(part, np.int64) for part in parts]])
    tokens = rows[0].tolist()
    device = model.embedding.weight.device
    with fitting_memory(len(tokens), _bytes(model, len(tokens))), trace(model, *how) as t:
        hidden = model.hidden(_row(model, tokens), segments=torch.from_numpy(segments).to(device))
        logits = chosen(hidden if model.transform is None or head else model.transform(hidden))
    return t, (tokens, segments[0].tolist()), logits


def _given(text: str) -> str:
    if not text.strip():
        raise DataError("the text is empty; give one with at least one word")
    return text


def _row(model: GPT | BERT, ids: Sequence[int]) -> Tensor:
    return torch.tensor([list(ids)], device=model.embedding.weight.device)


def _bytes(model: Any, length: int) -> int:
    """Of what grows fastest with the length: five square matrices for each head."""
    return 4 * 5 * int(model.config.n_heads) * int(model.config.n_layers) * length**2
