"""Validation of the text arguments of public methods.

A Python string is itself a sequence of strings, and ``None`` fails far from its origin. The errors here name the
argument in both cases.
"""

from collections.abc import Iterable
from typing import Any

from glassformer.errors import ConfigError, DataError


def one_text(text: Any, name: str) -> str:
    """Return ``text``; ``DataError`` if the argument ``name`` is not a string."""
    if not isinstance(text, str):
        raise DataError(f"{name} is {_describe(text)}; give one string")
    return text


def list_of_texts(texts: Any, name: str) -> list[str]:
    """``texts`` as a list; ``DataError`` if it is a single string, ``None`` or not a list of strings."""
    items = listed(texts, name)
    for index, text in enumerate(items):
        if not isinstance(text, str):
            raise DataError(f'{name}[{index}] is {_describe(text)}; give a string ("" for an empty text)')
    return items


def list_of_texts_or_pairs(texts: Any, name: str) -> list[tuple[str, ...]]:
    """Each text as a tuple, alone or with its pair; ``DataError`` as for ``list_of_texts``."""
    items = listed(texts, name)
    for index, text in enumerate(items):
        if isinstance(text, str):
            continue
        if not isinstance(text, tuple | list) or len(text) != 2 or not all(isinstance(one, str) for one in text):
            raise DataError(f"{name}[{index}] is {_describe(text)}; give a string, or a pair of strings")
    return [(text,) if isinstance(text, str) else tuple(text) for text in items]


def list_of_sentences(sentences: Any, name: str) -> list[list[str]]:
    """The words of each sentence; a sentence is a list of words or a text with spaces.

    Raises ``DataError`` as ``list_of_texts`` does.
    """
    items = listed(sentences, name)
    return [
        sentence.split() if isinstance(sentence, str) else list_of_texts(sentence, f"{name}[{index}]")
        for index, sentence in enumerate(items)
    ]


def listed(items: Any, name: str, example: str = "text") -> list[Any]:
    """``items`` as a list; ``DataError`` if the argument ``name`` is a single item, ``None`` or not a collection."""
    if items is None or isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise DataError(f"{name} is {_describe(items)}; give a list, as in [{example}]")
    return list(items)


def refuse_several(options: dict[str, Any], method: str, way: str) -> None:
    """Reject ``n_best`` above 1: ``method`` returns one text each, ``way`` is the method that returns several."""
    n_best = options.get("n_best")
    if isinstance(n_best, int) and n_best > 1:
        raise ConfigError(f"n_best={n_best}: {method} returns one text each; use {way}(…, n_best={n_best})")


def _describe(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, str):
        excerpt = value if len(value) <= 20 else f"{value[:20]}…"
        return f"one string, {excerpt!r}"
    return f"of type {type(value).__name__}"
