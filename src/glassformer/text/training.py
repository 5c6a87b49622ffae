"""Learn a vocabulary from text. The same text gives the same vocabulary, and so the same fingerprint."""

import json
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import tokenizers
from tokenizers import models, trainers

from glassformer.config import ConfigError, DataError
from glassformer.text.config import TextConfig
from glassformer.text.pair import TokenizerPair
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.words import JOINER, normalizer, pre_tokenizer, whole_characters

Lines = Callable[[], Iterator[str]]


def train_tokenizers(config: TextConfig, source: Lines, target: Lines) -> TokenizerPair:
    """Learn one vocabulary from both sides (``joint``) or one from each. Each side is read once a vocabulary.

    ``DataError`` when there is no text, or when its characters alone exceed ``vocab_size``.
    """
    if config.joint:
        return TokenizerPair(config, _train(config, chain(source(), target()), "source and target"))
    return TokenizerPair(config, _train(config, source(), "source"), _train(config, target(), "target"))


def _train(config: TextConfig, lines: Iterator[str], side: str) -> Tokenizer:
    specials = len(config.special_tokens)
    if config.vocab_size <= specials:
        raise ConfigError(f"vocab_size={config.vocab_size} leaves nothing beside {specials} special tokens; raise it")
    learn = {"bpe": _learn_merges, "word": _learn_words, "char": _learn_characters}[config.kind]
    encoder = tokenizers.Tokenizer(models.BPE())
    encoder.normalizer = normalizer(config)
    if (cut := pre_tokenizer(config)) is not None:
        encoder.pre_tokenizer = cut
    pipeline = learn(config, encoder, map(whole_characters, lines))
    vocabulary = pipeline["model"]["vocab"]
    special_tokens = {token: vocabulary[token] for token in config.special_tokens}
    if len(vocabulary) == specials + (2 if config.kind == "bpe" else 0):
        found = (
            f"no word occurs min_frequency={config.min_frequency} times"
            if config.kind == "word"
            else "no text, empty lines and lines of invalid UTF-8 left out"
        )
        raise DataError(f"{side}: {found}, so there is no vocabulary to learn; give more text")
    if len(vocabulary) > config.vocab_size:
        raise DataError(
            f"vocab_size={config.vocab_size} is too small: {side} has {len(vocabulary) - specials} characters beside "
            f"{specials} special tokens; choose at least {len(vocabulary)}"
        )
    # Not registered as added tokens: those would be looked for in the user's text.
    pipeline["added_tokens"] = []
    return Tokenizer(config.kind, special_tokens, pipeline)


def _learn_merges(config: TextConfig, encoder: tokenizers.Tokenizer, lines: Iterator[str]) -> dict[str, Any]:
    encoder.model = models.BPE(unk_token="<unk>")
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        special_tokens=list(config.special_tokens),
        # Both marks must be there even when this text never needed one: later text may.
        initial_alphabet=[JOINER, " "],
        show_progress=False,
    )
    encoder.train_from_iterator(lines, trainer)
    pipeline = json.loads(encoder.to_str())
    if config.merges is not None:
        _cut_merges(pipeline["model"], config.merges, config.special_tokens)
    return pipeline


def _cut_merges(model: dict[str, Any], count: int, specials: tuple[str, ...]) -> None:
    """Keep the first ``count`` merges, which are the same however many are learned, and the entries they make."""
    model["merges"] = model["merges"][:count]
    wanted = {left + right for left, right in model["merges"]}.union(specials)
    entries = sorted(model["vocab"], key=model["vocab"].__getitem__)
    kept = [entry for entry in entries if len(entry) == 1 or entry in wanted]
    model["vocab"] = {entry: id for id, entry in enumerate(kept)}


def _learn_words(config: TextConfig, encoder: tokenizers.Tokenizer, lines: Iterator[str]) -> dict[str, Any]:
    encoder.model = models.WordLevel(unk_token="<unk>")
    trainer = trainers.WordLevelTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        special_tokens=list(config.special_tokens),
        show_progress=False,
    )
    encoder.train_from_iterator(lines, trainer)
    return json.loads(encoder.to_str())


def _learn_characters(config: TextConfig, encoder: tokenizers.Tokenizer, lines: Iterator[str]) -> dict[str, Any]:
    """Characters are byte-pair encoding without a merge."""
    characters: set[str] = set()
    for line in lines:
        characters.update(encoder.normalizer.normalize_str(line))
    entries = [*config.special_tokens, *sorted(characters)]
    encoder.model = models.BPE({entry: i for i, entry in enumerate(entries)}, [], unk_token="<unk>")
    return json.loads(encoder.to_str())
