"""Texts as a model is to read them: their ids, in pieces where a text is too long; with warnings of what is lost."""

import warnings
from collections.abc import Sequence
from typing import NamedTuple

from glassformer.text.faults import LongText, LongTextWarning, TextError, warn_of_unknown
from glassformer.text.sentences import split_text
from glassformer.text.tokenizer import Tokenizer


class EncodedPart(NamedTuple):
    """A text or a piece of one, and its ids with the end token."""

    text: str
    ids: list[int]


class Limit(NamedTuple):
    """At most ``tokens`` are read at once, the end token included; ``longer`` texts are split, truncated or refused."""

    tokens: int
    longer: str

    def check(self, what: str, number: int, tokens: int) -> None:
        """``TextError`` where a text of so many ``tokens`` is to be refused."""
        if tokens > self.tokens and self.longer == "refuse":
            fault = f"has {tokens:,} tokens, more than the {self.tokens:,} that are read at once"
            raise TextError(what, number, f"{fault}; shorten it, or choose long_source=split")


def with_end(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    return [[*ids, tokenizer.end_id] for ids in tokenizer.encode_batch(list(texts))]


def read_in_parts(
    tokenizer: Tokenizer, texts: Sequence[str], numbers: Sequence[int], limit: Limit, stacklevel: int
) -> list[list[EncodedPart]]:
    """Each text as one part or several; ``numbers`` are those of the texts in messages.

    Warns of unknown characters and of long texts, for the caller ``stacklevel`` levels up.
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
        warnings.warn(LongTextWarning("text", long, limit.tokens, "the rest is left out"), stacklevel=stacklevel + 1)
    return parts


def warn_of_long(what: str, encoded: Sequence[Sequence[int]], limit: Limit, use: str, stacklevel: int) -> None:
    """Of texts that are read at once however long they are, since what belongs to them cannot be cut likewise."""
    long = {number: LongText(len(ids)) for number, ids in enumerate(encoded, start=1) if len(ids) > limit.tokens}
    for number, one in long.items():
        limit.check(what, number, one.tokens)
    if long:
        warnings.warn(LongTextWarning(what, long, limit.tokens, use), stacklevel=stacklevel + 1)
