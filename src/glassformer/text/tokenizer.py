"""One vocabulary: text → token ids, and back to exactly the normalized text."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np
import tokenizers
from numpy.typing import NDArray

from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.text.allowed import check_tokenizer, library_errors
from glassformer.text.config import SPECIAL_TOKENS
from glassformer.text.merges import MergeTable, dropper
from glassformer.text.words import END_OF_WORD, JOINER, join_words, replace_lone_surrogates

FORMAT = 1

# A forked process does not encode in parallel: it inherits the threads' locks but not the threads. ``tokenizers`` sees
# to that itself, but prints a warning unless the variable is set when the process forks.
_PARALLELISM = "TOKENIZERS_PARALLELISM"
_set_for_a_fork: list[bool] = []


def _before_fork() -> None:
    if _PARALLELISM not in os.environ:
        os.environ[_PARALLELISM] = "true"
        _set_for_a_fork.append(True)


def _after_fork() -> None:
    if _set_for_a_fork:
        _set_for_a_fork.pop()
        os.environ.pop(_PARALLELISM, None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork,
        after_in_child=lambda: os.environ.update({_PARALLELISM: "false"}),
    )


MEASURED_TOKENS = 1 << 16
"""Number of tokens decoded at a time to measure their text."""


class TextSize(NamedTuple):
    """Length of a text in characters and in UTF-8 bytes."""

    characters: int
    bytes: int


class Merge(NamedTuple):
    """One step of byte-pair encoding: ``left`` and ``right`` met; ``symbols`` is the word afterwards."""

    rank: int
    left: str
    right: str
    symbols: list[str]


class Segmentation(NamedTuple):
    """Byte-pair encoding of one word: its first symbols, the merges in order, and the ids of the tokens."""

    symbols: list[str]
    merges: list[Merge]
    ids: list[int]


class _Edges(NamedTuple):
    """Properties of an entry's text that decide where words begin."""

    is_space: bool
    """True if all of it is white space."""
    is_blank: bool
    """True if it is ``" "``, which separates no words after a joiner."""
    joins_before: bool
    """True if it begins with a joiner."""
    ends_apart: bool
    """True if it ends in a space that separates words."""
    ends_in_joiner: bool


class Tokenizer:
    """A trained vocabulary of kind bpe, word or char. Immutable, and safe to share between threads."""

    tokens_span_lines = False
    """True if a token may span a line end; then text must not be encoded line by line."""

    def __init__(self, kind: str, special_tokens: dict[str, int], pipeline: dict[str, Any]) -> None:
        """``pipeline`` is the JSON document of a ``tokenizers.Tokenizer``, which does the encoding."""
        self.kind = kind
        self.special_tokens = dict(special_tokens)
        self._pipeline = pipeline
        self._encoder = tokenizers.Tokenizer.from_str(json.dumps(pipeline))
        self.pad_id, self.start_id, self.end_id, self.unknown_id = (special_tokens[name] for name in SPECIAL_TOKENS)
        self._ids: dict[str, int] = pipeline["model"]["vocab"]
        self._entries = sorted(self._ids, key=self._ids.__getitem__)
        self._special = frozenset(special_tokens.values())
        end = " " if kind == "word" else ""
        self._pieces = ["" if i in self._special else entry + end for i, entry in enumerate(self._entries)]
        self._byte_of = _bytes_of_entries(self._ids) if pipeline["model"].get("byte_fallback") else {}
        for i in self._byte_of:
            self._pieces[i] = "\ufffd"  # part of a character: neither a space nor empty
        self._ends_word = [piece.endswith(" ") for piece in self._pieces]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that was learned."""
        return fingerprint(self._content())

    @property
    def vocab_size(self) -> int:
        return len(self._entries)

    def normalize(self, text: str) -> str:
        """The text as this vocabulary sees it, which is what ``decode`` gives back."""
        return self._joined(self._normalized(text))

    def encode(self, text: str) -> list[int]:
        """Token ids without special tokens. Text that looks like ``<s>`` is text."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        valid_texts = [replace_lone_surrogates(text) for text in texts]
        with library_errors("cannot encode"):
            encoded = self._encoder.encode_batch_fast(valid_texts, add_special_tokens=False)
        return [encoding.ids for encoding in encoded]

    def decode(self, ids: Sequence[int], copied: Mapping[int, str] | None = None) -> str:
        """The text of ``ids`` without special tokens; ``copied`` maps positions to the text that replaces ``<unk>``."""
        ids, texts = self._checked(ids), copied or {}
        end = " " if self.kind == "word" else ""
        if self._byte_of:
            parts = [texts[position].encode() if position in texts else self._utf8[i] for position, i in enumerate(ids)]
            return self._joined(b"".join(parts).decode(errors="replace"))
        return self._joined("".join([texts[n] + end if n in texts else self._pieces[i] for n, i in enumerate(ids)]))

    def size(self, ids: Sequence[int] | NDArray[np.integer], given: int = 0) -> TextSize:
        """Size of the decoded ``ids`` minus the size of the first ``given`` of them.

        Documents, separated by end tokens, are decoded one by one.
        """
        tokens, begin = np.asarray(ids), 0
        characters = size = 0
        for stop in [*np.flatnonzero(tokens == self.end_id).tolist(), len(tokens)]:
            known = min(max(given - begin, 0), stop - begin)
            for before, after in self._parts(tokens[begin:stop], known):
                characters += len(after) - len(before)
                size += len(after.encode()) - len(before.encode())
            begin = stop + 1
        return TextSize(characters, size)

    def _parts(self, document: NDArray[np.integer], known: int) -> Iterator[tuple[str, str]]:
        """Decoded parts of a document, as pairs (previous token, previous token with the part).

        A part does not end within a character.
        """
        while known < len(document):
            first, stop = max(0, known - 1), min(known + MEASURED_TOKENS, len(document))
            after = self.decode(document[first:stop].tolist())
            while after.endswith("\ufffd") and stop < min(known + MEASURED_TOKENS + 4, len(document)):
                stop += 1
                after = self.decode(document[first:stop].tolist())
            yield self.decode(document[first:known].tolist()), after
            known = stop

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The vocabulary entries as text; ``</w>`` marks the end of a word and ``￭`` a side without a space."""
        entries = [self._entries[i] for i in self._checked(ids)]
        return [entry.replace(" ", END_OF_WORD) for entry in entries] if self.kind == "bpe" else entries

    def word_of(self, ids: Sequence[int]) -> list[int]:
        """Index of the word, counted from 0, that each id is part of; -1 for special tokens.

        A space (char) belongs to the word before it. An unknown symbol is part of a word.
        """
        words: list[int] = []
        index, inside, apart, after_joiner = 0, False, False, False
        for i in self._checked(ids):
            edges = self._edges[i]
            if edges is None:
                words.append(-1)
                continue
            if not edges.is_space:
                index += inside and apart and not edges.joins_before
                inside = True
            words.append(index)
            apart = edges.ends_apart and not (after_joiner and edges.is_blank)
            after_joiner = edges.ends_in_joiner
        return words

    def unknown(self, text: str) -> list[str]:
        """The text behind each ``<unk>`` of ``encode(text)``, in order: normalized characters, or words (kind word)."""
        if self.unknown_id not in self.encode(text):
            return []
        normalized = self._encoder.normalizer.normalize_str(replace_lone_surrogates(text))
        if self.kind == "word":
            return [word.replace(JOINER, "") for word in normalized.split(" ") if word and word not in self._ids]
        return [character for character in normalized if character not in self._ids]

    def resample(self, ids: Sequence[int], dropout: float, generator: np.random.Generator) -> list[int]:
        """BPE-dropout: the same text cut differently, every possible merge left out with probability ``dropout``.

        0 gives the segmentation of ``encode``, 1 single characters. Word and char vocabularies return ``ids``.
        An unknown symbol stays one. Seeded by ``generator`` alone.
        """
        check_dropout(dropout)
        if self.kind != "bpe":
            return [int(i) for i in ids]
        dropped = dropper(dropout, generator)
        segment = self._merges.segment
        resampled: list[int] = []
        word: list[int] = []
        for i in self._checked(ids):
            word += self._characters[i]
            if self._ends_word[i]:
                resampled += segment(tuple(word), dropped)
                word = []
        return resampled + list(segment(tuple(word), dropped))

    def merges_of(self, word: str) -> list[Merge]:
        """The merges that ``encode`` applies to ``word``, in order; for several words, one word after the other."""
        steps: list[Merge] = []
        if not self._pipeline["model"].get("merges"):
            return steps
        for part, _ in self._encoder.pre_tokenizer.pre_tokenize_str(self._normalized(word)):
            steps += self._merge_steps(tuple(chain.from_iterable(map(self._symbols, part))))
        return steps

    def segmentations(self, ids: Sequence[int]) -> list[Segmentation]:
        """Byte-pair encoding of each word behind ``ids``, in order. A special token is a word by itself."""
        groups = self._segments(self._checked(ids))
        return [Segmentation(self.tokens(symbols), self._merge_steps(symbols), tokens) for tokens, symbols in groups]

    def _segments(self, ids: Sequence[int]) -> Iterator[tuple[list[int], tuple[int, ...]]]:
        """Ids of the tokens of each word, and those of its characters."""
        word: list[int] = []
        for i in ids:
            alone = self.kind != "bpe" or (i in self._special and i != self.unknown_id)
            if alone and word:
                yield word, self._joined_characters(word)
                word = []
            word.append(int(i))
            if alone or self._ends_word[i]:
                yield word, (int(i),) if alone else self._joined_characters(word)
                word = []
        if word:
            yield word, self._joined_characters(word)

    def _joined_characters(self, ids: Sequence[int]) -> tuple[int, ...]:
        return tuple(chain.from_iterable(self._characters[i] for i in ids))

    def _merge_steps(self, symbols: tuple[int, ...]) -> list[Merge]:
        """The merges of one word, from its first symbols on."""
        steps: list[Merge] = []
        if not self._pipeline["model"].get("merges"):
            return steps
        while possible := self._merges.possible(symbols):
            step = possible[0]
            left, right = self.tokens(symbols[step.position : step.position + 2])
            symbols = step.taken(symbols)
            steps.append(Merge(step.rank, left, right, self.tokens(symbols)))
        return steps

    def to_json(self) -> dict[str, Any]:
        return {**self._content(), "fingerprint": self.fingerprint}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """``CheckpointError`` when the document was edited, or this version of ``tokenizers`` cannot read it."""
        verify(document, "tokenizer")
        check_tokenizer(document)
        with library_errors("cannot be read"):
            return cls(document["kind"], document["special_tokens"], document["pipeline"])

    def _content(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "kind": self.kind,
            "special_tokens": self.special_tokens,
            "pipeline": self._pipeline,
        }

    def _normalized(self, text: str) -> str:
        return str(self._encoder.normalizer.normalize_str(replace_lone_surrogates(text)))

    def _joined(self, text: str) -> str:
        return text if self.kind == "char" else join_words(text)

    def _checked(self, ids: Sequence[int]) -> Sequence[int]:
        if len(ids) and not (min(ids) >= 0 and max(ids) < self.vocab_size):
            outside = next(i for i in ids if not 0 <= i < self.vocab_size)
            raise DataError(f"token id {outside} is not in this vocabulary; its ids go from 0 to {self.vocab_size - 1}")
        return ids

    def _symbols(self, character: str) -> list[int]:
        """Initial symbols for merging: the entry of the character, else its bytes if these have entries."""
        if character in self._ids or not self._byte_of:
            return [self._ids.get(character, self.unknown_id)]
        return [self._ids[byte_entry(byte)] for byte in character.encode()]

    @cached_property
    def _edges(self) -> list[_Edges | None]:
        """The edges of each entry; None for special tokens, which are part of no word."""
        pieces = list(self._pieces)
        pieces[self.unknown_id] = "\ufffd " if self.kind == "word" else "\ufffd"
        return [
            _Edges(
                is_space=piece.isspace(),
                joins_before=piece.startswith(JOINER),
                ends_apart=piece[-1:].isspace() and not piece.endswith(JOINER + " "),
                is_blank=piece == " ",
                ends_in_joiner=piece.endswith(JOINER),
            )
            if piece
            else None
            for piece in pieces
        ]

    @cached_property
    def _utf8(self) -> list[bytes]:
        """UTF-8 bytes of each entry, for byte fallback."""
        byte_of = self._byte_of
        return [bytes([byte_of[i]]) if i in byte_of else piece.encode() for i, piece in enumerate(self._pieces)]

    @cached_property
    def _merges(self) -> MergeTable:
        pairs = self._pipeline["model"]["merges"]
        ids = self._ids
        return MergeTable([(ids[a], ids[b]) for a, b in pairs], [ids[a + b] for a, b in pairs])

    @cached_property
    def _characters(self) -> list[list[int]]:
        """Ids of the characters of each id; special tokens and fallback bytes map to themselves."""
        atomic = self._special.union(self._byte_of)
        return [[i] if i in atomic else [self._ids[c] for c in piece] for i, piece in enumerate(self._pieces)]


def byte_entry(byte: int) -> str:
    """Vocabulary entry of a fallback byte, named as in SentencePiece."""
    return f"<0x{byte:02X}>"


def _bytes_of_entries(ids: dict[str, int]) -> dict[int, int]:
    return {ids[byte_entry(byte)]: byte for byte in range(256)}


def check_dropout(dropout: float) -> None:
    if not 0.0 <= dropout <= 1.0:
        raise ConfigError(f"bpe_dropout={dropout} is not a probability; choose it from 0 to 1")


def fingerprint(document: dict[str, Any]) -> str:
    """SHA-256, in hexadecimal, of the document as JSON with sorted keys and without spaces."""
    try:
        canonical = json.dumps(document, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()
    except (RecursionError, UnicodeEncodeError):
        raise CheckpointError("tokenizer: is nested too deeply or is not valid Unicode; restore the original") from None


def verify(document: Any, origin: str) -> None:
    """A ``CheckpointError`` when the document is of another format or is not what was once written."""
    if not isinstance(document, dict) or "fingerprint" not in document:
        raise CheckpointError(f"{origin}: not a tokenizer of glassformer; train one and save it")
    if document.get("format") != FORMAT:
        raise CheckpointError(
            f"{origin}: format {document.get('format')!r} is not {FORMAT}; use a matching glassformer"
        )
    content = {key: value for key, value in document.items() if key != "fingerprint"}
    if fingerprint(content) != document["fingerprint"]:
        raise CheckpointError(f"{origin}: changed since it was written (its SHA-256 differs); restore the original")
