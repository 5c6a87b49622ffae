"""Byte-level BPE (Radford et al. 2019, section 2.2): lossless and without unknown tokens.

The base vocabulary is all 256 bytes. ``tokenizer.json`` writes each byte as one printable character, by GPT-2's table:
``Ġ`` is the space. GPT-2's pattern splits the text into words, numbers, punctuation and spaces before merging.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from glassformer.text.merges import dropper
from glassformer.text.tokenizer import Tokenizer, check_dropout

KIND = "bytes"
UNKNOWN = "\ufffd"


def byte_characters() -> list[str]:
    """GPT-2's character for each byte: itself if printable and not a space, else the next one from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(0x100 + others.index(byte)) for byte in range(256)]


BYTES = {character: byte for byte, character in enumerate(byte_characters())}
"""Byte value of each character in a vocabulary entry."""


def readable(data: bytes) -> str:
    """Decode ``data`` as UTF-8; bytes of incomplete characters are written as ``<0xE2>``."""
    text = data.decode(errors="surrogateescape")
    return "".join(f"<0x{ord(c) - 0xDC00:02X}>" if "\udc80" <= c <= "\udcff" else c for c in text)


def words_of_pieces(pieces: Sequence[bytes]) -> list[int]:
    """Index of the space-separated word that each UTF-8 piece belongs to; -1 for an empty piece.

    A piece belongs to the word of its first character other than a space. A piece of spaces belongs to the word before.
    """
    words_of_bytes = list[tuple[int, bool]]()  # for each byte: index of its word, and True for a space
    word, inside, spaced = 0, False, False
    for character in b"".join(pieces).decode(errors="surrogateescape"):
        if character.isspace():
            spaced = True
        else:
            word += inside and spaced
            inside, spaced = True, False
        words_of_bytes += [(word, spaced)] * len(character.encode(errors="surrogateescape"))
    word_numbers, begin = list[int](), 0
    for piece in pieces:
        own = words_of_bytes[begin : begin + len(piece)]
        begin += len(piece)
        word_numbers.append(next((word for word, space in own if not space), own[0][0]) if own else -1)
    return word_numbers


class ByteTokenizer(Tokenizer):
    """A trained vocabulary of kind bytes: without normalization, ``decode(encode(text)) == text``.

    A lone surrogate, which UTF-8 cannot represent, is read as U+FFFD, as in every kind.
    """

    tokens_span_lines = True

    def __init__(self, kind: str, special_tokens: dict[str, int], pipeline: dict[str, Any]) -> None:
        super().__init__(kind, special_tokens, pipeline)
        self._bytes = [bytes(map(BYTES.__getitem__, piece)) for piece in self._pieces]

    def normalize(self, text: str) -> str:
        return self._normalized(text)

    def decode(self, ids: Sequence[int], copied: Mapping[int, str] | None = None) -> str:
        """The text of ``ids``, as in ``Tokenizer.decode``; invalid UTF-8, e.g. a cut character, becomes U+FFFD."""
        texts = copied or {}
        parts = [texts[n].encode() if n in texts else self._bytes[i] for n, i in enumerate(self._checked(ids))]
        return b"".join(parts).decode(errors="replace")

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The text of each token, spaces included; bytes of incomplete characters as ``<0xE2>``."""
        return [self._display[i] for i in self._checked(ids)]

    def word_of(self, ids: Sequence[int]) -> list[int]:
        unknown = UNKNOWN.encode()
        return words_of_pieces([unknown if i == self.unknown_id else self._bytes[i] for i in self._checked(ids)])

    def resample(self, ids: Sequence[int], dropout: float, generator: np.random.Generator) -> list[int]:
        """BPE-dropout within the words of GPT-2's pattern; 1 gives single bytes.

        In ids that are not valid UTF-8, each token is segmented by itself.
        """
        check_dropout(dropout)
        dropped = dropper(dropout, generator)
        resampled: list[int] = []
        for special, group in groupby(self._checked(ids), self._special.__contains__):
            if special:
                resampled += group
            else:
                for word in self._words(list(group)):
                    resampled += self._merges.segment(word, dropped)
        return resampled

    def _segments(self, ids: Sequence[int]) -> Iterator[tuple[list[int], tuple[int, ...]]]:
        """Ids of the tokens of each word, and those of its bytes."""
        for special, group in groupby(ids, self._special.__contains__):
            tokens = list(map(int, group))
            start = 0
            for symbols in ((i,) for i in tokens) if special else self._words(tokens):
                stop, length = start, 0
                while length < len(symbols) and stop < len(tokens):
                    length += 1 if special else len(self._bytes[tokens[stop]])
                    stop += 1
                yield tokens[start:stop], symbols
                start = stop

    def _words(self, ids: list[int]) -> Iterator[tuple[int, ...]]:
        """Byte ids of each word; merges do not cross words."""
        try:
            text = b"".join([self._bytes[i] for i in ids]).decode()
        except UnicodeDecodeError:
            yield from (tuple(self._characters[i]) for i in ids)
            return
        for word, _ in self._encoder.pre_tokenizer.pre_tokenize_str(text):
            yield tuple(self._ids[character] for character in word)

    @cached_property
    def _display(self) -> list[str]:
        return [
            entry if i in self._special else readable(data)
            for i, (entry, data) in enumerate(zip(self._entries, self._bytes, strict=True))
        ]
