"""Lines of input: predictions for each, with warnings and errors by the line of their file."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from glassformer.cli.messages import warn
from glassformer.storage.regular_files import display_name

if TYPE_CHECKING:
    from glassformer.cli.io import Output
    from glassformer.predict.encoder import Encoder, Text
    from glassformer.text.errors import WarningTotals

Input = TypeVar("Input")
Result = TypeVar("Result")

SEVERAL = ("source", "target", "prefix")
"""Kinds of text that share a line with other kinds."""


class Line(NamedTuple, Generic[Input]):
    """One line of input, numbered from 1; ``flags`` are the fields of its warnings for a JSON object."""

    value: Input
    number: int
    flags: dict[str, Any]


class LineWindow(NamedTuple, Generic[Input]):
    """Consecutive lines that are predicted together: ``rows`` of ``file``, after ``first`` earlier lines.

    ``file`` is the name in errors; None for texts without a file.
    """

    file: str | None
    first: int
    rows: list[Input]


def predict_lines(
    stream: "Output",
    batches: Iterable[list[Input]],
    predict: Callable[[list[Input]], Sequence[Result]],
    text: Callable[[Line[Input], Result], str],
    file: str | None = None,
    files: dict[str, str] | None = None,
) -> "LineWarnings":
    """Write the ``text`` of the prediction for each line, batch by batch. The caller prints the summary of warnings.

    ``file`` is the file of the lines, which errors name; ``files`` are those of each kind of text, if several.
    """
    warnings, done = LineWarnings(files or file), 0
    for rows in batches:
        for line, result in predict_window(LineWindow(file, done, rows), predict, warnings):
            stream.write(text(line, result) + "\n")
        done += len(rows)
        stream.flush()
    return warnings


def predict_window(
    window: LineWindow[Input], predict: Callable[[list[Input]], Sequence[Result]], warnings: "LineWarnings"
) -> Iterator[tuple[Line[Input], Result]]:
    """Each line of ``window`` with its prediction; warnings and errors name the lines of the file."""
    with name_lines(window.file, window.first), warnings.collect(len(window.rows), window.first):
        results = predict(window.rows)
    for number, (row, result) in enumerate(zip(window.rows, results, strict=True), start=window.first + 1):
        yield Line(row, number, warnings.flags(number)), result


def warn_of_truncated(encoder: "Encoder", texts: Sequence["Text"]) -> None:
    """Issue one warning for all ``texts`` of more tokens than ``encoder`` reads."""
    from glassformer.text.errors import LongText, LongTextWarning

    if long := {index + 1: LongText(length) for index, length in encoder.too_long(texts)}:
        warnings.warn(LongTextWarning("text", long, encoder.max_length, "it is truncated"), stacklevel=2)


@contextmanager
def name_lines(file: str | None, done: int) -> Iterator[None]:
    """Report warnings and errors about a text by its line in ``file``, after ``done`` earlier lines.

    None: texts without a file, whose errors give their number after ``done`` earlier ones.
    """
    from glassformer.errors import DataError
    from glassformer.generate import LogitsError
    from glassformer.text.errors import TextError, TextWarning

    if file is None:
        try:
            yield
        except TextError as error:
            what = str(error).removesuffix(f" {error.number} {error.fault}")
            raise TextError(what, done + error.number, error.fault) from None
        return
    name = display_name(file)

    def with_line(warning: Any, show: Callable[..., None]) -> None:
        show(f"{name}, line {done + warning.number}: {warning.fault}")

    with _handle_warnings((TextWarning,), with_line):
        try:
            yield
        except TextError as error:
            raise DataError(f"{name}, line {done + error.number}: {error.fault}") from None
        except LogitsError as error:
            raise DataError(f"{name}, line {done + error.text + 1}: {error.fault}") from None


@contextmanager
def _handle_warnings(
    categories: tuple[type[Warning], ...], handle: Callable[[Any, Callable[..., None]], None]
) -> Iterator[None]:
    """Pass each warning of ``categories`` to ``handle``, with a function that shows its replacement."""
    with warnings.catch_warnings():
        before: Any = warnings.showwarning

        def show(message: Any, *rest: Any, **named: Any) -> None:
            if isinstance(message, categories):
                handle(message, lambda text: before(text, *rest, **named))
            else:
                before(message, *rest, **named)

        for category in categories:
            warnings.simplefilter("always", category)
        warnings.showwarning = show
        yield


class LineWarnings:
    """Collector of the library's warnings about single texts: one message at the first line, a summary at the end.

    ``files`` is the file of the lines, or a mapping from each kind of text to its file. None: texts without a file.
    """

    def __init__(self, files: str | dict[str, str] | None) -> None:
        self._files = files
        self._totals: dict[tuple[type, str], WarningTotals] = {}
        self._flags: dict[str, dict[int, dict[str, Any]]] = {}
        self._lines = self._first = 0
        self.unknown: set[int] = set()
        """Numbers, from 1, of those of the last lines that have text outside the vocabulary."""
        self.long: set[int] = set()
        """Numbers of those of the last lines that exceed the token limit."""

    @contextmanager
    def collect(self, count: int, first: int = 0) -> Iterator[None]:
        """Collect the library's warnings about ``count`` lines, after ``first`` earlier lines of their file."""
        from glassformer.text.errors import LongTextWarning, UnknownWarning

        self._flags, self._first, self.unknown, self.long = {}, first, set(), set()
        with _handle_warnings((LongTextWarning, UnknownWarning), lambda warning, _: self._add(warning)):
            yield
        self._lines += count

    def flags(self, number: int) -> dict[str, Any]:
        """Fields for the JSON object of one of the last lines: ``{"unknown": ["П"]}``; empty without a warning.

        If a line has several texts, the key names the kind of text: ``{"unknown_target": ["П"]}``.
        """
        fields: dict[str, Any] = {}
        for kind, lines in self._flags.items():
            ending = f"_{kind}" if kind in SEVERAL else ""
            fields |= {key + ending: value for key, value in lines.get(number, {}).items()}
        return fields

    def summarize(self, scope: str = "") -> None:
        """Print a summary of each kind of warning that concerns more than one line of a file, after ``scope``."""
        for (category, kind), totals in self._totals.items():
            if totals.texts > 1 and self._files is not None:
                warn(f"{self._name(kind)}: {scope}{category.summary(totals, self._lines)}")  # type: ignore[attr-defined]

    def _add(self, warning: Any) -> None:
        from glassformer.text.errors import UnknownWarning, WarningTotals

        totals = self._totals.setdefault((type(warning), warning.what), WarningTotals())
        if not totals.texts:
            number = min(warning.found)
            line = self._first + number
            named = self._files is not None
            place = f"{self._name(warning.what)}, line {line}" if named else f"{warning.what} {line}"
            warn(f"{place}: {warning.fault(number)}")
        warning.add_to(totals)
        (self.unknown if isinstance(warning, UnknownWarning) else self.long).update(warning.found)
        for number in warning.found:
            flags = self._flags.setdefault(warning.what, {}).setdefault(self._first + number, {})
            flags.update(warning.flags(number))

    def _name(self, kind: str) -> str:
        return display_name(self._files[kind] if isinstance(self._files, dict) else str(self._files))
