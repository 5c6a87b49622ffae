"""Report of text that a vocabulary does not know: a warning at the first line that has some, a summary at the end."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from glassformer.cli.streams import note


class UnknownText:
    """``files``: the file whose lines are read, or one for each kind of text; None for texts that are in no file."""

    def __init__(self, files: str | dict[str, str] | None) -> None:
        self._files = files
        self._found: dict[str, dict[int, list[str]]] = {}
        self._lines = 0

    @contextmanager
    def watched(self, count: int) -> Iterator[None]:
        """Take the library's warnings about the next ``count`` lines."""
        from glassformer.text.faults import UnknownWarning

        with warnings.catch_warnings():
            before: Any = warnings.showwarning

            def show(message: Any, *rest: Any, **named: Any) -> None:
                if isinstance(message, UnknownWarning):
                    self._take(message)
                else:
                    before(message, *rest, **named)

            warnings.simplefilter("always", UnknownWarning)
            warnings.showwarning = show
            yield
        self._lines += count

    def flags(self, number: int, what: str = "") -> dict[str, list[str]]:
        """For the JSON object of a line: ``{"unknown": ["П"]}``; empty where all is known.

        ``what`` chooses one of several files, and names the key: ``unknown_target``.
        """
        found = [lines[number] for kind, lines in self._found.items() if number in lines and what in ("", kind)]
        return {f"unknown_{what}" if what else "unknown": found[0]} if found else {}

    def summarize(self) -> None:
        """At the end of the files, where more than the line that was warned of has something unknown."""
        from glassformer.text.faults import listed

        for what, lines in self._found.items():
            if len(lines) > 1 and self._files is not None:
                different = list(dict.fromkeys(part for unknown in lines.values() for part in unknown))
                share = f"{len(lines):,} of {self._lines:,} lines have text that the vocabulary does not know"
                parts = f"{len(different):,} different: {listed(different)}"
                note(f"glassformer: warning: {self._name(what)}: {share}, {parts}")

    def _take(self, warning: Any) -> None:
        known, done = self._found.setdefault(warning.what, {}), self._lines
        if not known:
            number = min(warning.found)
            where = f"{warning.what} {number}" if self._files is None else self._name(warning.what)
            line = "" if self._files is None else f", line {done + number}"
            note(f"glassformer: warning: {where}{line}: {warning.fault(number)}")
        known.update({done + number: list(unknown) for number, unknown in warning.found.items()})

    def _name(self, what: str) -> str:
        name = self._files[what] if isinstance(self._files, dict) else self._files
        return "standard input" if name == "-" else str(name)
