"""Errors and warnings about single texts of a list, with the text's number, so that a caller can name its line."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from glassformer.config import DataError
from glassformer.text.tokenizer import Tokenizer

SHOWN = 3
"""Unknown characters that a message lists."""

Found = TypeVar("Found")


class _OfOneText(Exception):  # noqa: N818 - a warning is one too
    def __init__(self, what: str, number: int, fault: str):
        super().__init__(f"{what} {number} {fault}")
        self.number, self.fault = number, fault


class TextError(_OfOneText, DataError):
    """``number``, from 1, is that of the text in the list; it ``fault``."""


class TextWarning(_OfOneText, UserWarning):
    """The same of a text that is used nevertheless."""


class _OfManyTexts(UserWarning, ABC, Generic[Found]):
    """One warning for all texts of a call: ``found`` maps the number of a text in the list, from 1, to what was found.

    ``what`` is the kind of text: text, sentence, prompt, source or target.
    """

    def __init__(self, what: str, found: Mapping[int, Found]):
        self.what, self.found = what, found
        number, further = min(found), len(found) - 1
        also = f" ({further:,} more {'text' if further == 1 else 'texts'} likewise)" if further else ""
        super().__init__(f"{what} {number}: {self.fault(number)}{also}")

    @abstractmethod
    def fault(self, number: int) -> str:
        """Describe what is wrong with one of the texts."""

    @abstractmethod
    def flags(self, number: int) -> dict[str, Any]:
        """The same as keys of a JSON object."""

    @staticmethod
    @abstractmethod
    def summary(found: Sequence[Any], lines: int) -> str:
        """Describe all values ``found`` in a file of ``lines`` lines."""


class UnknownWarning(_OfManyTexts[Sequence[str]]):
    """Characters (words in a vocabulary of words) that the vocabulary does not know, each once a text."""

    def __init__(self, what: str, found: Mapping[int, Sequence[str]], token: str = "<unk>"):
        self.token = token
        super().__init__(what, found)

    def fault(self, number: int) -> str:
        return f"the vocabulary does not know {listed(self.found[number])}; read as {self.token}"

    def flags(self, number: int) -> dict[str, Any]:
        return {"unknown": list(self.found[number])}

    @staticmethod
    def summary(found: Sequence[Any], lines: int) -> str:
        different = list(dict.fromkeys(part for unknown in found for part in unknown))
        share = f"{len(found):,} of {lines:,} lines have text that the vocabulary does not know"
        return f"{share}, {len(different):,} different: {listed(different)}"


class LongText(NamedTuple):
    """A text of more ``tokens`` than are read at once; ``pieces`` are empty where it is not cut, but read in part."""

    tokens: int
    pieces: Sequence[str] = ()


class LongTextWarning(_OfManyTexts[LongText]):
    """Texts of more than ``limit`` tokens; ``use`` says what becomes of one that is not cut into pieces."""

    def __init__(self, what: str, found: Mapping[int, LongText], limit: int, use: str):
        self.limit, self.use = limit, use
        super().__init__(what, found)

    def fault(self, number: int) -> str:
        tokens, pieces = self.found[number]
        use = f"it is translated in {len(pieces):,} pieces" if pieces else self.use
        return f"{tokens:,} tokens are more than the {self.limit:,} that are read at once; {use}"

    def flags(self, number: int) -> dict[str, Any]:
        tokens, pieces = self.found[number]
        return {"pieces": list(pieces)} if pieces else {"long": {"tokens": tokens, "limit": self.limit}}

    @staticmethod
    def summary(found: Sequence[Any], lines: int) -> str:
        pieces = sum(len(one.pieces) for one in found)
        cut = f", translated in {pieces:,} pieces" if pieces else ""
        return f"{len(found):,} of {lines:,} lines are longer than what is read at once{cut}"


def warn_of_unknown(
    tokenizer: Tokenizer, what: str, texts: Iterable[tuple[int, str, Sequence[int]]], stacklevel: int = 1
) -> None:
    """One ``UnknownWarning`` for all ``texts``: (number, text, ids), a number as often as a text has parts.

    ``stacklevel`` counts from the caller of this function, as that of ``warnings.warn`` does from its own.
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
    """Ignore what is reported elsewhere, as for the texts of a validation."""
    with warnings.catch_warnings():
        for category in (UnknownWarning, LongTextWarning):
            warnings.simplefilter("ignore", category)
        yield


def listed(unknown: Sequence[str]) -> str:
    """``'П', 'р', 'и' and 4 more``; what cannot be printed is escaped, what is long is cut."""
    shown = ", ".join(repr(text if len(text) <= 20 else f"{text[:20]}…") for text in unknown[:SHOWN])
    return f"{shown} and {len(unknown) - SHOWN:,} more" if len(unknown) > SHOWN else shown
