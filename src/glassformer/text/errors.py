"""Errors and warnings about individual texts in a list.

Each holds the number of the text, so that a caller can name the line of a file.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from glassformer.errors import DataError
from glassformer.text.tokenizer import Tokenizer

MAX_LISTED = 3
"""Maximum number of unknown characters listed in a message."""

Found = TypeVar("Found")


class _OfOneText(Exception):  # noqa: N818 - also the base of a warning
    def __init__(self, what: str, number: int, fault: str):
        super().__init__(f"{what} {number} {fault}")
        self.number, self.fault = number, fault


class TextError(_OfOneText, DataError):
    """Error about one text: ``number`` is its position in the list, from 1, and ``fault`` the problem."""


class TextWarning(_OfOneText, UserWarning):
    """Warning about one text that is used nevertheless, with the fields of ``TextError``."""


class _OfManyTexts(UserWarning, ABC, Generic[Found]):
    """One warning for all texts of a call: ``found`` maps the number of a text, from 1, to the problem.

    ``what`` is the kind of text: text, sentence, prompt, source or target.
    """

    def __init__(self, what: str, found: Mapping[int, Found]):
        self.what, self.found = what, found
        number, further = min(found), len(found) - 1
        also = f" (and {further:,} more {'text' if further == 1 else 'texts'})" if further else ""
        super().__init__(f"{what} {number}: {self.fault(number)}{also}")

    @abstractmethod
    def fault(self, number: int) -> str:
        """Description of the problem of text ``number``."""

    @abstractmethod
    def flags(self, number: int) -> dict[str, Any]:
        """Machine-readable form of ``fault``, as keys of a JSON object."""

    @staticmethod
    @abstractmethod
    def summary(found: Sequence[Any], lines: int) -> str:
        """Summary for a file of ``lines`` lines; ``found`` concatenates the values of all its warnings."""


class UnknownWarning(_OfManyTexts[Sequence[str]]):
    """Characters (words for kind word) outside the vocabulary, each listed once per text."""

    def __init__(self, what: str, found: Mapping[int, Sequence[str]], token: str = "<unk>"):
        self.token = token
        super().__init__(what, found)

    def fault(self, number: int) -> str:
        return f"not in the vocabulary: {listed(self.found[number])}; read as {self.token}"

    def flags(self, number: int) -> dict[str, Any]:
        return {"unknown": list(self.found[number])}

    @staticmethod
    def summary(found: Sequence[Any], lines: int) -> str:
        different = list(dict.fromkeys(part for unknown in found for part in unknown))
        share = f"{len(found):,} of {lines:,} lines have text outside the vocabulary"
        return f"{share}, {len(different):,} different: {listed(different)}"


class LongText(NamedTuple):
    """A text with more ``tokens`` than the limit; ``pieces`` is empty unless the text is split."""

    tokens: int
    pieces: Sequence[str] = ()


class LongTextWarning(_OfManyTexts[LongText]):
    """Texts of more than ``limit`` tokens; ``use`` describes how a text is used that is not split."""

    def __init__(self, what: str, found: Mapping[int, LongText], limit: int, use: str):
        self.limit, self.use = limit, use
        super().__init__(what, found)

    def fault(self, number: int) -> str:
        tokens, pieces = self.found[number]
        use = f"it is translated in {len(pieces):,} pieces" if pieces else self.use
        return f"{tokens:,} tokens exceed the limit of {self.limit:,}; {use}"

    def flags(self, number: int) -> dict[str, Any]:
        tokens, pieces = self.found[number]
        return {"pieces": list(pieces)} if pieces else {"long": {"tokens": tokens, "limit": self.limit}}

    @staticmethod
    def summary(found: Sequence[Any], lines: int) -> str:
        pieces = sum(len(one.pieces) for one in found)
        cut = f", translated in {pieces:,} pieces" if pieces else ""
        return f"{len(found):,} of {lines:,} lines exceed the token limit{cut}"


def warn_of_unknown(
    tokenizer: Tokenizer, what: str, texts: Iterable[tuple[int, str, Sequence[int]]], stacklevel: int = 1
) -> None:
    """Issue one ``UnknownWarning`` for all ``texts``, each a tuple (number, text, ids).

    A number occurs once for each part of its text. ``stacklevel`` counts from the caller of this function.
    """
    found: dict[int, dict[str, None]] = {}
    for number, text, ids in texts:
        if tokenizer.unknown_id in ids and (unknown := tokenizer.unknown(text)):
            found.setdefault(number, {}).update(dict.fromkeys(unknown))
    if found:
        token = tokenizer.tokens([tokenizer.unknown_id])[0]
        warning = UnknownWarning(what, {number: list(unknown) for number, unknown in found.items()}, token)
        warnings.warn(warning, stacklevel=stacklevel + 1)


@contextmanager
def without_text_warnings() -> Iterator[None]:
    """Suppress text warnings that are reported elsewhere, e.g. during validation."""
    with warnings.catch_warnings():
        for category in (UnknownWarning, LongTextWarning):
            warnings.simplefilter("ignore", category)
        yield


def listed(unknown: Sequence[str]) -> str:
    """Format as ``'П', 'р', 'и' and 4 more``; unprintable characters are escaped, long texts truncated."""
    listed = ", ".join(repr(text if len(text) <= 20 else f"{text[:20]}…") for text in unknown[:MAX_LISTED])
    return f"{listed} and {len(unknown) - MAX_LISTED:,} more" if len(unknown) > MAX_LISTED else listed
