"""Errors and warnings about single texts of a list, with the text's number, so that a caller can name its line."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from glassformer.config import DataError
from glassformer.text.tokenizer import Tokenizer

SHOWN = 3
"""Unknown characters that a message lists."""


class _OfOneText(Exception):  # noqa: N818 - a warning is one too
    def __init__(self, what: str, number: int, fault: str):
        super().__init__(f"{what} {number} {fault}")
        self.number, self.fault = number, fault


class TextError(_OfOneText, DataError):
    """``number``, from 1, is that of the text in the list; it ``fault``."""


class TextWarning(_OfOneText, UserWarning):
    """The same of a text that is used nevertheless."""


class UnknownWarning(UserWarning):
    """Text that the vocabulary does not know, in any number of the texts of one call.

    ``found`` maps the number of a text in the list, from 1, to its unknown characters (words in a vocabulary of
    words), each once. ``what`` is the kind of text: text, sentence, prompt, source or target.
    """

    def __init__(self, what: str, found: Mapping[int, Sequence[str]], token: str = "<unk>"):
        self.what, self.found, self.token = what, found, token
        number, further = min(found), len(found) - 1
        also = f" ({further:,} more {'text has' if further == 1 else 'texts have'} such)" if further else ""
        super().__init__(f"{what} {number}: {self.fault(number)}{also}")

    def fault(self, number: int) -> str:
        """What is wrong with one of the texts."""
        return f"the vocabulary does not know {listed(self.found[number])}; read as {self.token}"


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
        warnings.simplefilter("ignore", UnknownWarning)
        yield


def listed(unknown: Sequence[str]) -> str:
    """``'П', 'р', 'и' and 4 more``; what cannot be printed is escaped, what is long is cut."""
    shown = ", ".join(repr(text if len(text) <= 20 else f"{text[:20]}…") for text in unknown[:SHOWN])
    return f"{shown} and {len(unknown) - SHOWN:,} more" if len(unknown) > SHOWN else shown
