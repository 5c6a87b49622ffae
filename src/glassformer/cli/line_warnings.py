"""The library's warnings about single texts, by line: one at the first line concerned, and a summary at the end."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from glassformer.cli.streams import note

SEVERAL = ("source", "target", "prefix")
"""Kinds of text that stand beside others of the same line."""


class LineWarnings:
    """``files``: the file whose lines are read, or one for each kind of text; None for texts that are in no file."""

    def __init__(self, files: str | dict[str, str] | None) -> None:
        self._files = files
        self._found: dict[tuple[type, str], dict[int, Any]] = {}
        self._flags: dict[str, dict[int, dict[str, Any]]] = {}
        self._lines = 0

    @contextmanager
    def watched(self, count: int) -> Iterator[None]:
        """Take the library's warnings about the next ``count`` lines."""
        from glassformer.text.faults import LongTextWarning, UnknownWarning

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
        """For the JSON object of a line: ``{"unknown": ["П"]}``, ``{"unknown_target": ["П"]}`` where a line has several
        texts; empty where nothing is to be said of it."""
        found: dict[str, Any] = {}
        for what, lines in self._flags.items():
            ending = f"_{what}" if what in SEVERAL else ""
            found |= {key + ending: value for key, value in lines.get(number, {}).items()}
        return found

    def summarize(self) -> None:
        """At the end of the files, where more lines than the one that was warned of are concerned."""
        for (category, what), lines in self._found.items():
            if len(lines) > 1 and self._files is not None:
                summary = category.summary(list(lines.values()), self._lines)  # type: ignore[attr-defined]
                note(f"glassformer: warning: {self._name(what)}: {summary}")

    def _take(self, warning: Any) -> None:
        found, done = self._found.setdefault((type(warning), warning.what), {}), self._lines
        if not found:
            number = min(warning.found)
            where = f"{warning.what} {number}" if self._files is None else f"{self._name(warning.what)}, line "
            line = "" if self._files is None else str(done + number)
            note(f"glassformer: warning: {where}{line}: {warning.fault(number)}")
        for number, value in warning.found.items():
            found[done + number] = value
            self._flags.setdefault(warning.what, {}).setdefault(done + number, {}).update(warning.flags(number))

    def _name(self, what: str) -> str:
        name = self._files[what] if isinstance(self._files, dict) else self._files
        return "standard input" if name == "-" else str(name)
