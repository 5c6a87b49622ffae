"""Warnings about lines of text: one warning at the first line, and a summary at the end."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from glassformer.cli.io import note

SEVERAL = ("source", "target", "prefix")
"""Kinds of text that share a line with other kinds."""


class LineWarnings:
    """Collector of the library's warnings about single texts.

    ``files`` is the file of the lines, or a mapping from each kind of text to its file. None: texts without a file.
    """

    def __init__(self, files: str | dict[str, str] | None) -> None:
        self._files = files
        self._found: dict[tuple[type, str], dict[int, Any]] = {}
        self._flags: dict[str, dict[int, dict[str, Any]]] = {}
        self._lines = 0

    @contextmanager
    def watched(self, count: int) -> Iterator[None]:
        """Collect the library's warnings about the next ``count`` lines."""
        from glassformer.text.errors import LongTextWarning, UnknownWarning

        with warnings.catch_warnings():
            before: Any = warnings.showwarning

            def show(message: Any, *rest: Any, **named: Any) -> None:
                if isinstance(message, LongTextWarning | UnknownWarning):
                    self._take(message)
                else:
                    before(message, *rest, **named)

            for category in (LongTextWarning, UnknownWarning):
                warnings.simplefilter("always", category)
            warnings.showwarning = show
            yield
        self._lines += count

    def flags(self, number: int) -> dict[str, Any]:
        """Fields for the JSON object of a line: ``{"unknown": ["П"]}``; empty without a warning.

        If a line has several texts, the key names the kind of text: ``{"unknown_target": ["П"]}``.
        """
        found: dict[str, Any] = {}
        for what, lines in self._flags.items():
            ending = f"_{what}" if what in SEVERAL else ""
            found |= {key + ending: value for key, value in lines.get(number, {}).items()}
        return found

    def summarize(self) -> None:
        """Print a summary of each kind of warning that concerns more than one line of a file."""
        for (category, what), lines in self._found.items():
            if len(lines) > 1 and self._files is not None:
                summary = category.summary(list(lines.values()), self._lines)  # type: ignore[attr-defined]
                note(f"glassformer: warning: {self._name(what)}: {summary}")

    def _take(self, warning: Any) -> None:
        found, done = self._found.setdefault((type(warning), warning.what), {}), self._lines
        if not found:
            number = min(warning.found)
            where = f"{warning.what} {number}"
            if self._files is not None:
                where = f"{self._name(warning.what)}, line {done + number}"
            note(f"glassformer: warning: {where}: {warning.fault(number)}")
        for number, value in warning.found.items():
            found[done + number] = value
            self._flags.setdefault(warning.what, {}).setdefault(done + number, {}).update(warning.flags(number))

    def _name(self, what: str) -> str:
        name = self._files[what] if isinstance(self._files, dict) else self._files
        return "standard input" if name == "-" else str(name)
