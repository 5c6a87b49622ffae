"""What is wrong with one of the texts that were given together: its number is known apart, for who knows its line."""

from glassformer.config import DataError


class _OfOneText(Exception):  # noqa: N818 - a warning is one too
    def __init__(self, what: str, number: int, fault: str):
        super().__init__(f"{what} {number} {fault}")
        self.number, self.fault = number, fault


class TextError(_OfOneText, DataError):
    """``number``, from 1, is that of the text in the list; it ``fault``."""


class TextWarning(_OfOneText, UserWarning):
    """The same of a text that is used nevertheless."""
