"""Examples of texts: pairs of source and target, and texts of GPT and of BERT with each of its heads."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from glassformer.data.sequences import Frame, special_id
from glassformer.errors import ConfigError, DataError
from glassformer.explain.example import Example, ExampleInput, Side
from glassformer.explain.matrix import visible
from glassformer.explain.trace import Trace, trace
from glassformer.models.bert import BERT
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.gpt import GPT
from glassformer.predict.filler import MASK, encode_with_masks
from glassformer.predict.loading import load_run
from glassformer.predict.memory import fitting_memory
from glassformer.predict.translator import Translator
from glassformer.taps import Edit
from glassformer.text.arguments import one_text
from glassformer.text.tokenizer import Tokenizer

Edits = Mapping[str, Edit] | None


@torch.no_grad()
def examine(
    translator: Translator, source: str, target: str | None = None, keep: str = "*", edits: Edits = None
) -> Example:
    """Trace the (first) model of ``translator`` over ``source`` and ``target``, its own translation when None."""
    if not one_text(source, "source").strip():
        raise DataError("the sentence is empty; give one with at least one word")
    if target is None:
        target = translator.translate([source])[0]
    one_text(target, "target")
    model, tokenizers, symbols = translator.models[0], translator.tokenizers, translator.symbols
    source_ids = [*tokenizers.source.encode(source), symbols.end]
    target_ids = [symbols.start, *tokenizers.target.encode(target)]
    ids = [torch.tensor([one], device=translator.device) for one in (source_ids, target_ids)]
    longest = max(len(source_ids), len(target_ids))
    with fitting_memory(longest, _pair_bytes(model, longest)), trace(model, keep, edits) as t:
        model(*ids)
    sides = (
        Side.of("source", tokenizers.source, source_ids, source),
        Side.of("target", tokenizers.target, target_ids, target),
    )
    predicted = [*target_ids[1:], symbols.end]
    return Example(model, t, "translation", "is translated as", target, sides, predicted, translator=translator)


@torch.no_grad()
def examine_continuation(model: GPT, tokenizer: Tokenizer, text: str, keep: str = "*", edits: Edits = None) -> Example:
    """``text`` through GPT, and the most probable next token."""
    ids = tokenizer.encode(_nonempty(text))
    with fitting_memory(len(ids), _attention_bytes(model, len(ids))), trace(model, keep, edits) as t:
        logits = model(_row(model, ids))
    best, last = int(logits[0, -1].argmax()), len(ids) - 1
    output = tokenizer.decode([best]).strip() or visible(tokenizer.tokens([best])[0])
    side = Side.of("text", tokenizer, ids, text)
    segments = (0,) * len(ids)
    return Example(model, t, "language", "goes on with", output, (side,), [*ids[1:], best], (last,), segments)


def examine_masked(model: BERT, tokenizer: Tokenizer, text: str, keep: str = "*", edits: Edits = None) -> Example:
    """``text`` through BERT, and the most probable word at each ``[MASK]``."""
    if MASK not in _nonempty(text):
        raise DataError(f"there is no {MASK} in the text; write {MASK} in place of one word")
    mask, ids = special_id(tokenizer, MASK), encode_with_masks(tokenizer, text)
    t, (tokens, segments), logits = _encode(model, tokenizer, [ids], (keep, edits))
    hidden = tuple(place for place, i in enumerate(tokens) if i == mask)
    filled = [int(logits[0, place].argmax()) if place in hidden else i for place, i in enumerate(tokens)]
    side = Side.of("text", tokenizer, tokens, text, tokenizer.unknown(text.replace(MASK, " ")))
    output = tokenizer.decode(filled)
    return Example(model, t, "masked", "is filled in as", output, (side,), filled, hidden, segments)


def examine_class(
    model: BERT, tokenizer: Tokenizer, texts: Sequence[str], names: Sequence[str], keep: str = "*", edits: Edits = None
) -> Example:
    """A text, or a pair of texts, through BERT, and its class."""
    parts = [tokenizer.encode(_nonempty(text)) for text in texts]
    t, (tokens, segments), logits = _encode(model, tokenizer, parts, (keep, edits), "classes")
    unknown = [part for text in texts for part in tokenizer.unknown(text)]
    side = Side.of("text", tokenizer, tokens, " · ".join(texts), unknown)
    output = names[int(logits[0].argmax())]
    return Example(
        model, t, "classification", "is of the class", output, (side,), tokens, segments=segments, labels=tuple(names)
    )


def examine_tags(
    model: BERT, tokenizer: Tokenizer, text: str, names: Sequence[str], keep: str = "*", edits: Edits = None
) -> Example:
    """A sentence through BERT, and a tag for each of its words, at the word's first piece."""
    pieces = [tokenizer.encode(word) for word in _nonempty(text).split()]
    ids = [i for word in pieces for i in word]
    t, (tokens, segments), logits = _encode(model, tokenizer, [ids], (keep, edits), "tags")
    starts = tuple(1 + sum(map(len, pieces[:number])) for number, word in enumerate(pieces) if word)
    unknown = [part for word in text.split() for part in tokenizer.unknown(word)]
    side = Side.of("text", tokenizer, tokens, text, unknown)
    output = " ".join(names[int(logits[0, place].argmax())] for place in starts)
    return Example(model, t, "tagging", "is tagged", output, (side,), tokens, starts, segments, tuple(names))


def examine_translation(run: str | Path, example: ExampleInput) -> Example:
    return examine(
        Translator.load(run, device=example.device), example.text, example.second, example.keep, example.edits
    )


def examine_language(run: str | Path, example: ExampleInput) -> Example:
    loaded = load_run(run, device=example.device)
    return examine_continuation(loaded.model, loaded.tokenizer, example.text, example.keep, example.edits)


def examine_masked_text(run: str | Path, example: ExampleInput) -> Example:
    loaded = load_run(run, device=example.device)
    return examine_masked(loaded.model, loaded.tokenizer, example.text, example.keep, example.edits)


def examine_classification(run: str | Path, example: ExampleInput) -> Example:
    loaded = load_run(run, device=example.device)
    texts = [example.text] if example.second is None else [example.text, example.second]
    return examine_class(loaded.model, loaded.tokenizer, texts, loaded.setting("labels"), example.keep, example.edits)


def examine_tagging(run: str | Path, example: ExampleInput) -> Example:
    loaded = load_run(run, device=example.device)
    return examine_tags(
        loaded.model, loaded.tokenizer, example.text, loaded.setting("tags"), example.keep, example.edits
    )


@torch.no_grad()
def _encode(
    model: BERT, tokenizer: Tokenizer, parts: Sequence[Sequence[int]], options: tuple[str, Edits], head: str = ""
) -> tuple[Trace, tuple[list[int], tuple[int, ...]], Tensor]:
    """The trace, tokens and segments, and the logits of the head: that of hidden tokens, ``classes`` or ``tags``."""
    chosen = getattr(model, head) if head else model.output_projection
    if chosen is None:
        raise ConfigError(f"this model has no head for {head or 'hidden tokens'}; train one for that task")
    rows, _, segments = Frame.of(tokenizer).rows([[np.array(part, np.int64) for part in parts]])
    tokens = rows[0].tolist()
    device = model.embedding.weight.device
    with fitting_memory(len(tokens), _attention_bytes(model, len(tokens))), trace(model, *options) as t:
        hidden = model.hidden(_row(model, tokens), segments=torch.from_numpy(segments).to(device))
        logits = chosen(hidden if model.transform is None or head else model.transform(hidden))
    return t, (tokens, tuple(segments[0].tolist())), logits


def _nonempty(text: str) -> str:
    if not text.strip():
        raise DataError("the text is empty; give one with at least one word")
    return text


def _row(model: GPT | BERT, ids: Sequence[int]) -> Tensor:
    return torch.tensor([list(ids)], device=model.embedding.weight.device)


def _attention_bytes(model: GPT | BERT, length: int) -> int:
    """Bytes of the tensors that grow fastest with the length: five square matrices for each head."""
    return 4 * 5 * int(model.config.n_heads) * int(model.config.n_layers) * length**2


def _pair_bytes(model: EncoderDecoder, length: int) -> int:
    """Bytes of five square matrices for each head, and of four numbers for each token of the vocabulary at each
    position."""
    config = model.config
    heads = config.n_heads * (config.n_encoder_layers + 2 * config.n_decoder_layers)
    return 4 * (5 * heads * length**2 + 4 * max(config.vocab_sizes) * length)
