"""A vocabulary that was learned elsewhere: any pipeline of the ``tokenizers`` library, with a decoder of its own."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
import tokenizers

from glassformer.errors import CheckpointError, ConfigError
from glassformer.text.allowed import check_pipeline, library_errors
from glassformer.text.byte_level import BYTES, readable
from glassformer.text.config import SPECIAL_TOKENS, TextConfig
from glassformer.text.tokenizer import Merge, Segmentation, Tokenizer, check_dropout, verify
from glassformer.text.words import replace_lone_surrogates

KIND = "foreign"
UNNAMED = "\0"
"""Prefix of the name of an entry without a piece; no text contains it."""


class PretrainedConfig(TextConfig):
    """Configuration of a pretrained vocabulary; only ``joint`` and ``vocab_size`` have a meaning."""

    kind: Literal["foreign"] = "foreign"  # type: ignore[assignment]


class PretrainedTokenizer(Tokenizer):
    """``special_tokens`` gives the ids of our four, which may share one: Marian's start symbol is its padding.

    ``entries`` is the vocabulary as its decoder knows it, where the pipeline has other names for some of it. What the
    pipeline has beyond ``entries`` is unknown to the model. A prefix that the pipeline's post-processor puts before
    every text (a language, say) is part of ``encode``.
    """

    def __init__(
        self, special_tokens: dict[str, int], pipeline: dict[str, Any], entries: list[str] | None = None
    ) -> None:
        self.kind = KIND
        self.special_tokens = dict(special_tokens)
        self._pipeline = pipeline
        check_pipeline(pipeline)
        with library_errors("cannot be read"):
            # The document may enable truncation and padding, which must stay off.
            self._encoder = tokenizers.Tokenizer.from_str(json.dumps({**pipeline, "truncation": None, "padding": None}))
        self._encoder.encode_special_tokens = True  # text that looks like a special token is text
        self.pad_id, self.start_id, self.end_id, self.unknown_id = (special_tokens[name] for name in SPECIAL_TOKENS)
        self._entries_argument = entries
        if entries is None:
            ids = self._encoder.get_vocab(with_added_tokens=True)
            entries = entries_by_id(ids, max(ids.values()) + 1)
        self._entries = list(entries)
        self._ids = {entry: id for id, entry in enumerate(self._entries)}
        if not 0 <= min(special_tokens.values()) <= max(special_tokens.values()) < len(self._entries):
            raise ConfigError(f"special tokens {special_tokens} are not all among {len(self._entries)} entries")
        named = {token["id"] for token in pipeline.get("added_tokens", []) if token["special"]}
        unnamed = {id for id, entry in enumerate(self._entries) if entry.startswith(UNNAMED)}
        self._silent = named | unnamed | set(special_tokens.values())
        self._byte_level = "ByteLevel" in json.dumps(pipeline.get("decoder"))
        empty_ids = self._encoder.encode("", add_special_tokens=True).ids
        self._prefix = empty_ids[: empty_ids.index(self.end_id)] if self.end_id in empty_ids else empty_ids

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        verify(document, "tokenizer")
        if document.get("kind") != KIND:
            raise CheckpointError(f"tokenizer: its kind is not {KIND}; restore the original")
        entries, names = document.get("entries"), document.get("special_tokens")
        if entries is not None and not (isinstance(entries, list) and all(isinstance(one, str) for one in entries)):
            raise CheckpointError("tokenizer: entries is not a list of strings; restore the original")
        if not isinstance(names, dict) or not all(type(id) is int for id in names.values()):
            raise CheckpointError("tokenizer: special_tokens is not an object of integer ids; restore the original")
        with library_errors("cannot be read"):
            return cls(names, document["pipeline"], entries)

    def normalize(self, text: str) -> str:
        return self.decode(self.encode(text))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        with_names = self._entries_argument is not None
        encode = self._encoder.encode_batch if with_names else self._encoder.encode_batch_fast
        with library_errors("cannot encode"):
            encodings = encode([replace_lone_surrogates(text) for text in texts], add_special_tokens=False)
        return [self._prefix + [self._known(id, name) for id, name in zip(one.ids, one.tokens)] for one in encodings]

    def decode(self, ids: Sequence[int], copied: Mapping[int, str] | None = None) -> str:
        texts = copied or {}
        entries = [
            texts.get(position, self._entries[i])
            for position, i in enumerate(self._checked(ids))
            if position in texts or i not in self._silent
        ]
        decoder = self._encoder.decoder
        return " ".join(entries) if decoder is None else str(decoder.decode(entries))

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The vocabulary entries; entries of a byte-level vocabulary are decoded."""
        entries = [self._entries[i] for i in self._checked(ids)]
        return [self._readable(entry) for entry in entries] if self._byte_level else entries

    def word_of(self, ids: Sequence[int]) -> list[int]:
        """Word of each id, found by decoding ever longer prefixes of ``ids``."""
        words = []
        for count, id in enumerate(self._checked(ids), start=1):
            n_words = len(self.decode(ids[:count]).split())
            words.append(-1 if id in self._silent and id != self.unknown_id else max(n_words - 1, 0))
        return words

    def unknown(self, text: str) -> list[str]:
        """The part of ``text`` behind each unknown token: a character, a run of characters or a word."""
        text = replace_lone_surrogates(text)
        encodings = self._encoder.encode(text, add_special_tokens=False)
        parts = zip(encodings.ids, encodings.tokens, encodings.offsets, strict=True)
        return [text[start:end] or name for id, name, (start, end) in parts if self._known(id, name) == self.unknown_id]

    def resample(self, ids: Sequence[int], dropout: float, generator: np.random.Generator) -> list[int]:
        """Return ``ids`` unchanged: other segmentations of an imported vocabulary are unknown."""
        check_dropout(dropout)
        return [int(i) for i in ids]

    def merges_of(self, word: str) -> list[Merge]:
        return []

    def segmentations(self, ids: Sequence[int]) -> list[Segmentation]:
        """Each token by itself: the merges of an imported vocabulary are unknown."""
        return [Segmentation(self.tokens([i]), [], [int(i)]) for i in ids]

    def _readable(self, entry: str) -> str:
        """Decode a byte-level entry; an entry with other characters, such as a special token, is unchanged."""
        return readable(bytes(map(BYTES.__getitem__, entry))) if BYTES.keys() >= set(entry) else entry

    def _known(self, id: int, name: str) -> int:
        """The id of a token, looked up by name if the pipeline has no id for it, as Marian does."""
        if id < self.vocab_size and id != self.unknown_id:
            return id
        named = self._ids.get(name, self.unknown_id)
        return self.unknown_id if named in self._silent else named

    def _content(self) -> dict[str, Any]:
        content = super()._content()
        return content if self._entries_argument is None else {**content, "entries": self._entries_argument}


def entries_by_id(ids: Mapping[str, int], size: int) -> list[str]:
    """The entry of each id below ``size``; an id without one has a name that no text contains."""
    names = {id: entry for entry, id in ids.items()}
    return [names.get(id, f"{UNNAMED}{id}") for id in range(size)]
