"""Encode texts for a model: split or truncate long texts, and warn about unknown characters."""

import warnings
from collections.abc import Sequence
from typing import NamedTuple

from glassformer.text.errors import LongText, LongTextWarning, TextError, warn_of_unknown
from glassformer.text.sentences import split_text
from glassformer.text.tokenizer import Tokenizer


class EncodedPart(NamedTuple):
    """A text or a piece of a text, and its ids with the end token."""

    text: str
    ids: list[int]


class Limit(NamedTuple):
    """Maximum ``tokens`` per text, end token included; ``longer`` is split, truncate or refuse."""

    tokens: int
    longer: str

    def check(self, what: str, number: int, tokens: int) -> None:
        """Raise ``TextError`` if ``longer`` is refuse and a text has too many ``tokens``."""
        if tokens > self.tokens and self.longer == "refuse":
            fault = f"has {tokens:,} tokens, more than the limit of {self.tokens:,}"
            raise TextError(what, number, f"{fault}; shorten it, or choose long_source=split")


def with_end(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    return [[*ids, tokenizer.end_id] for ids in tokenizer.encode_batch(list(texts))]


def read_in_parts(
    tokenizer: Tokenizer, texts: Sequence[str], numbers: Sequence[int], limit: Limit, stacklevel: int
) -> list[list[EncodedPart]]:
    """Encode each text as one part or several; ``numbers`` identify the texts in messages.

    Warns about unknown characters and long texts, for the caller ``stacklevel`` levels up.
    """
    encoded = with_end(tokenizer, texts)
    warn_of_unknown(tokenizer, "text", zip(numbers, texts, encoded, strict=True), stacklevel + 1)
    parts, long = [], dict[int, LongText]()
    for number, text, ids in zip(numbers, texts, encoded, strict=True):
        limit.check("text", number, len(ids))
        if len(ids) <= limit.tokens:
            parts.append([EncodedPart(text, ids)])
        elif limit.longer == "truncate":
            read = ids[: limit.tokens - 1]
            parts.append([EncodedPart(tokenizer.decode(read), [*read, tokenizer.end_id])])
            long[number] = LongText(len(ids))
        else:
            pieces = split_text(text, limit.tokens, lambda piece: len(tokenizer.encode(piece)) + 1)
            parts.append([EncodedPart(*one) for one in zip(pieces, with_end(tokenizer, pieces), strict=True)])
            long[number] = LongText(len(ids), pieces)
    if long:
        warnings.warn(LongTextWarning("text", long, limit.tokens, "it is truncated"), stacklevel=stacklevel + 1)
    return parts


def warn_of_long(what: str, encoded: Sequence[Sequence[int]], limit: Limit, use: str, stacklevel: int) -> None:
    """Warn about long texts that are not split, since their counterparts cannot be split at the same points."""
    long = {number: LongText(len(ids)) for number, ids in enumerate(encoded, start=1) if len(ids) > limit.tokens}
    for number, one in long.items():
        limit.check(what, number, one.tokens)
    if long:
        warnings.warn(LongTextWarning(what, long, limit.tokens, use), stacklevel=stacklevel + 1)
