"""Errors and warnings about individual texts in a list.

Each holds the number of the text, so that a caller can name the line of a file.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from glassformer.errors import DataError
from glassformer.text.tokenizer import Tokenizer

MAX_LISTED = 3
"""Maximum number of unknown characters listed in a message."""
MAX_DIFFERENT = 100_000
"""Maximum number of different unknown words or characters that are counted, so that memory is bounded."""

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

    @abstractmethod
    def add_to(self, totals: "WarningTotals") -> None:
        """Add the texts of this warning to ``totals``."""

    @staticmethod
    @abstractmethod
    def summary(totals: "WarningTotals", lines: int) -> str:
        """Summary for a file of ``lines`` lines; ``totals`` are those of all its warnings of this kind."""


@dataclass
class WarningTotals:
    """Totals of the warnings of one kind, in bounded memory."""

    texts: int = 0
    pieces: int = 0
    """Pieces of the texts that were split."""
    different: dict[str, None] = field(default_factory=dict)
    """Words or characters outside the vocabulary, the first ones first; at most ``MAX_DIFFERENT``."""


class UnknownWarning(_OfManyTexts[Sequence[str]]):
    """Characters (words for kind word) outside the vocabulary, each listed once per text."""

    def __init__(self, what: str, found: Mapping[int, Sequence[str]], token: str = "<unk>"):
        self.token = token
        super().__init__(what, found)

    def fault(self, number: int) -> str:
        return f"not in the vocabulary: {listed(self.found[number])}; read as {self.token}"

    def flags(self, number: int) -> dict[str, Any]:
        return {"unknown": list(self.found[number])}

    def add_to(self, totals: WarningTotals) -> None:
        totals.texts += len(self.found)
        for part in (part for unknown in self.found.values() for part in unknown):
            if len(totals.different) < MAX_DIFFERENT:
                totals.different[part] = None

    @staticmethod
    def summary(totals: WarningTotals, lines: int) -> str:
        share = f"{totals.texts:,} of {lines:,} lines have text outside the vocabulary"
        count = f"{len(totals.different):,}{'' if len(totals.different) < MAX_DIFFERENT else ' or more'}"
        return f"{share}, {count} different: {listed(list(totals.different))}"


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

    def add_to(self, totals: WarningTotals) -> None:
        totals.texts += len(self.found)
        totals.pieces += sum(len(one.pieces) for one in self.found.values())

    @staticmethod
    def summary(totals: WarningTotals, lines: int) -> str:
        cut = f", translated in {totals.pieces:,} pieces" if totals.pieces else ""
        return f"{totals.texts:,} of {lines:,} lines exceed the token limit{cut}"


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
