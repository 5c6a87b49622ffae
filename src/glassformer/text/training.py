"""Learn a vocabulary from text. The same text gives the same vocabulary, and so the same fingerprint."""

import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from glassformer.errors import ConfigError, DataError
from glassformer.text.config import TextConfig
from glassformer.text.pair import TokenizerPair, tokenizer_class
from glassformer.text.tokenizer import Tokenizer, byte_entry
from glassformer.text.words import JOINER, normalizer, pre_tokenizer, replace_lone_surrogates

Lines = Callable[[], Iterator[str]]


def train_tokenizers(config: TextConfig, source: Lines, target: Lines) -> TokenizerPair:
    """Learn one vocabulary from both sides (``joint``) or one from each.

    Each side is read once per vocabulary, with ``byte_fallback`` twice. ``DataError`` when there is no text, or when
    its characters alone exceed ``vocab_size``. Warns if kind bytes is combined with normalization, which loses text.
    """
    if config.kind == "bytes":
        _warn_of_normalization(config)
    if config.joint:
        return TokenizerPair(config, _train(config, lambda: chain(source(), target()), "source and target"))
    return TokenizerPair(config, _train(config, source, "source"), _train(config, target, "target"))


def _warn_of_normalization(config: TextConfig) -> None:
    changes = ["text.lowercase=true"] if config.lowercase else []
    if config.normalization != "none":
        changes.append(f'text.normalization="{config.normalization}"')
    if changes:
        warnings.warn(
            f'{" and ".join(changes)} with kind="bytes": decoding returns normalized text; '
            "remove the setting to restore text exactly",
            stacklevel=3,
        )


def _train(config: TextConfig, lines: Lines, side: str) -> Tokenizer:
    specials = len(config.special_tokens)
    if config.vocab_size <= specials:
        raise ConfigError(f"vocab_size={config.vocab_size} leaves nothing beside {specials} special tokens; raise it")
    learn = {"bpe": _learn_merges, "word": _learn_words, "char": _learn_characters, "bytes": _learn_byte_merges}
    encoder = tokenizers.Tokenizer(models.BPE())
    encoder.normalizer = normalizer(config)
    if (cut := pre_tokenizer(config)) is not None:
        encoder.pre_tokenizer = cut
    any_text = False

    def read() -> Iterator[str]:
        nonlocal any_text
        for line in lines():
            any_text = any_text or bool(line.strip())
            yield replace_lone_surrogates(line)

    pipeline = learn[config.kind](config, encoder, read)
    vocabulary = pipeline["model"]["vocab"]
    special_tokens = {token: vocabulary[token] for token in config.special_tokens}
    _check_learned(config, len(vocabulary), any_text, side)
    # Not registered as added tokens: those would be looked for in the user's text.
    pipeline["added_tokens"] = []
    return tokenizer_class(config.kind)(config.kind, special_tokens, pipeline)


def _check_learned(config: TextConfig, size: int, any_text: bool, side: str) -> None:
    """Raise ``DataError`` for a vocabulary that is empty or too large; ``seen`` is true if any text was not blank."""
    specials, reserved = len(config.special_tokens), len(_reserved(config))
    of_bytes = config.kind == "bytes" or config.byte_fallback
    if not any_text if of_bytes else size == reserved + (2 if config.kind == "bpe" else 0):
        message = (
            f"no word occurs min_frequency={config.min_frequency} times"
            if config.kind == "word"
            else "no text, empty lines and lines of invalid UTF-8 left out"
        )
        raise DataError(f"{side}: {message}, so there is no vocabulary to learn; give more text")
    if size > config.vocab_size:
        characters = "the 256 bytes" if config.kind == "bytes" else f"{size - reserved} characters"
        characters += ", 256 bytes" if config.byte_fallback else ""
        raise DataError(
            f"vocab_size={config.vocab_size} is too small for {characters} and {specials} special tokens of {side}; "
            f"choose at least {size}"
        )


def _learn_merges(config: TextConfig, encoder: tokenizers.Tokenizer, lines: Lines) -> dict[str, Any]:
    encoder.model = models.BPE(unk_token="<unk>", byte_fallback=config.byte_fallback)
    # Include both marks even if the training text lacks them: later text may need them.
    marks = [JOINER, " "]
    limit: dict[str, Any] = {}
    if config.byte_fallback:
        limit["limit_alphabet"] = _frequent_characters(config, encoder, lines, marks)
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        special_tokens=list(_reserved(config)),
        **limit,
        initial_alphabet=marks,
        show_progress=False,
    )
    encoder.train_from_iterator(lines(), trainer)
    return _with_merges(config, encoder)


def _learn_byte_merges(config: TextConfig, encoder: tokenizers.Tokenizer, lines: Lines) -> dict[str, Any]:
    encoder.model = models.BPE()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        special_tokens=list(_reserved(config)),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    encoder.train_from_iterator(lines(), trainer)
    return _with_merges(config, encoder)


def _frequent_characters(config: TextConfig, encoder: tokenizers.Tokenizer, lines: Lines, marks: list[str]) -> int:
    """Number of characters with at least ``min_frequency`` occurrences; the trainer keeps that many."""
    counts: Counter[str] = Counter()
    for line in lines():
        counts.update(encoder.normalizer.normalize_str(line))
    return len({character for character, count in counts.items() if count >= config.min_frequency}.union(marks))


def _reserved(config: TextConfig) -> tuple[str, ...]:
    """First entries of the vocabulary: special tokens, then fallback bytes."""
    return config.special_tokens + (tuple(map(byte_entry, range(256))) if config.byte_fallback else ())


def _with_merges(config: TextConfig, encoder: tokenizers.Tokenizer) -> dict[str, Any]:
    pipeline: dict[str, Any] = json.loads(encoder.to_str())
    if config.merges is not None:
        _cut_merges(pipeline["model"], config.merges, _reserved(config))
    return pipeline


def _cut_merges(model: dict[str, Any], count: int, specials: tuple[str, ...]) -> None:
    """Keep the first ``count`` merges, which are the same however many are learned, and the entries they make."""
    model["merges"] = model["merges"][:count]
    needed = {left + right for left, right in model["merges"]}.union(specials)
    entries = sorted(model["vocab"], key=model["vocab"].__getitem__)
    remaining = [entry for entry in entries if len(entry) == 1 or entry in needed]
    model["vocab"] = {entry: id for id, entry in enumerate(remaining)}


def _learn_words(config: TextConfig, encoder: tokenizers.Tokenizer, lines: Lines) -> dict[str, Any]:
    encoder.model = models.WordLevel(unk_token="<unk>")
    trainer = trainers.WordLevelTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        special_tokens=list(config.special_tokens),
        show_progress=False,
    )
    encoder.train_from_iterator(lines(), trainer)
    return json.loads(encoder.to_str())


def _learn_characters(config: TextConfig, encoder: tokenizers.Tokenizer, lines: Lines) -> dict[str, Any]:
    """Characters are byte-pair encoding without a merge."""
    characters: set[str] = set()
    for line in lines():
        characters.update(encoder.normalizer.normalize_str(line))
    entries = [*config.special_tokens, *sorted(characters)]
    encoder.model = models.BPE({entry: i for i, entry in enumerate(entries)}, [], unk_token="<unk>")
    return json.loads(encoder.to_str())
