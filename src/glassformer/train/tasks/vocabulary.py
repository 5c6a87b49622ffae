"""Vocabularies: learned from the text of a task, or kept from the run it starts from; and the settings they decide."""

from collections.abc import Callable, Iterator
from typing import Any

from glassformer.data.corpus import CHARACTERS_PER_TOKEN
from glassformer.data.shards.shard_batches import check_tokenizer
from glassformer.data.shards.shard_index import TOKENIZER
from glassformer.data.shards.shard_set import ShardSet
from glassformer.errors import ConfigError
from glassformer.layers.position import ENCODINGS
from glassformer.text import TextConfig, TokenizerPair, train_tokenizers
from glassformer.train.task import SourceCheckpoint

LONGEST_TEXT = CHARACTERS_PER_TOKEN * 4096


def one_vocabulary(
    config: TextConfig, texts: Callable[[], Iterator[str]], origin: SourceCheckpoint | None, marks: tuple[str, ...] = ()
) -> TokenizerPair:
    """The tokenizer of ``origin``, or one learned from ``texts`` with ``marks`` among its special tokens."""
    if origin is not None:
        vocabulary = vocabulary_of(origin)
        if missing := [mark for mark in marks if mark not in vocabulary.source.special_tokens]:
            raise ConfigError(
                f"{origin.path}: its vocabulary has no {', '.join(missing)}, which this task needs; "
                f"train that run with text.extra_special={list(marks)}"
            )
        return vocabulary
    special = (*marks, *(name for name in config.extra_special if name not in marks))
    config = TextConfig.parse({**config.model_dump(), "extra_special": special}, "text")
    return train_tokenizers(config, lambda: (text for text in texts() if len(text) <= LONGEST_TEXT), lambda: iter(()))


def vocabulary_of_shards(shards: ShardSet, config: Any, origin: SourceCheckpoint | None) -> TokenizerPair:
    """The tokenizer of ``origin``, which the shards must be of, or the one stored with the shards."""
    if origin is not None:
        vocabulary = vocabulary_of(origin)
        check_tokenizer(shards, vocabulary, None)
    else:
        vocabulary = TokenizerPair.load(shards.folder / TOKENIZER)
        check_tokenizer(shards, vocabulary, config.text.model_dump(mode="json"))
    return vocabulary


def vocabulary_of(origin: SourceCheckpoint) -> TokenizerPair:
    """Vocabulary of a run that is resumed, or that another run starts from."""
    if not origin.metadata.tokenizer:
        raise ConfigError(
            f"train.start_from={origin.path}: this run reads no text, so it has no vocabulary; name a run that has one"
        )
    return TokenizerPair.from_json(origin.metadata.tokenizer, origin.path)


def with_vocabulary(values: dict[str, Any], actual: int | tuple[int, int]) -> dict[str, Any]:
    """A model's settings with the ``actual`` number of entries, or the two numbers, of its tokenizers."""
    if values["vocab_size"] not in (None, actual):
        raise ConfigError(
            f"model.vocab_size={values['vocab_size']}, but the tokenizer has {actual} entries; "
            "leave model.vocab_size out"
        )
    return {**values, "vocab_size": actual}


def check_no_dropout(config: TextConfig) -> None:
    """A ``ValueError``, for a configuration's validator, when text should be segmented anew each time."""
    if config.bpe_dropout:
        raise ValueError(
            f"text.bpe_dropout={config.bpe_dropout:g} is for translation; "
            "the text of other tasks is encoded once, so set it to 0"
        )


def check_length(setting: str, length: int, max_length: int, positions: str = "learned") -> None:
    """A ``ValueError``, for a configuration's validator, if ``positions`` end at ``max_length``, before ``length``."""
    if ENCODINGS[positions].bounded and length > max_length:
        raise ValueError(
            f"{setting}={length} is more than the model.max_length={max_length} {positions} positions; "
            "lower the first or raise the second"
        )
