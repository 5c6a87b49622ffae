"""A table of numbers over time: CSV with a header, read cell by cell, with its dates checked and its gaps filled."""

import csv
import io
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glassformer.data.config import Missing
from glassformer.data.input_errors import invalid_csv
from glassformer.data.readers import raw_lines
from glassformer.errors import DataError, nearest
from glassformer.storage.regular_files import MAX_LINE_BYTES, display_name

MISSING = {"", "nan", "na", "n/a", "null", "none"}
LARGEST = float(np.finfo(np.float32).max)
_FILL_IN = {"remedy": "fill it in", "setting": "data.missing", "advice": "set data.missing=previous"}
_LEAVE_OUT = {"remedy": "fill it in", "setting": "data.columns", "advice": "leave it out by naming data.columns"}
_OF_COLUMN = {
    "date": {"advice": "correct data.date, or set data.date='' where there is none"},
    "columns": {"remedy": "add or rename it", "advice": "name others in data.columns"},
}
"""Ways out for a column that the table lacks, by the setting that names it."""


@dataclass(frozen=True)
class Table:
    """Values of named variables at evenly spaced moments."""

    columns: tuple[str, ...]
    values: NDArray[np.float64]  # rows variables
    lines: NDArray[np.int64]  # of the file, where each row stands; 0 for one that was left out there
    known: NDArray[np.bool_]  # rows variables; False: missing there, and the last known value before it here
    header: tuple[str, ...] = ()  # of the file
    date: str = ""  # its column of dates; empty: there is none
    dates: tuple[str, ...] = ()  # the cells of that column


def read_table(
    path: str,
    date: str | None = "date",
    columns: list[str] | None = None,
    missing: Missing = "refuse",
    max_line_bytes: int | None = None,
) -> Table:
    """Read ``columns`` (all but ``date`` when not given) of a CSV file, plain or ``.gz``, once.

    Without a ``date``, the column of dates is ``date``, or else the only one that is not in ``columns``. With
    ``max_line_bytes``, the file may be a pipe, or standard input (``-``), and a line has at most as many bytes.

    Raises ``DataError`` naming line and column of what is no finite number; where dates go back or a date is left out;
    and for columns that are not there.
    """
    lines = _csv_lines(Path(path), max_line_bytes)
    path = display_name(path)
    _, header = next(lines, (0, list[str]()))
    if date is None:
        date = _date_column(header, columns or [])
    names = _columns(path, header, date, columns or [])
    place_of = {name: place for place, name in enumerate(header)}
    places, date_place = [place_of[name] for name in names], place_of[date] if date else None
    rows, numbers, dates, moments = list[list[float]](), list[int](), list[str](), list[float]()
    for number, cells in lines:
        if len(cells) != len(header):
            raise DataError(
                f"{path}, line {number}: has {len(cells)} cells, and the header {len(header)}; fix the line"
            )
        rows.append([_value(path, number, header[place], cells[place], missing) for place in places])
        numbers.append(number)
        if date_place is not None:
            dates.append(cells[date_place])
            moments.append(_moment(path, number, date, dates[-1]))
    if not rows:
        raise DataError(f"{path}: has no line of numbers under its header; give at least one")
    values = np.array(rows, np.float64)
    table = Table(names, values, np.array(numbers), np.isfinite(values), tuple(header), date, tuple(dates))
    if date:
        table = _evenly_spaced(path, table, np.array(moments), missing)
    return _carried_forward(path, table)


def _csv_lines(path: Path, max_line_bytes: int | None) -> Iterator[tuple[int, list[str]]]:
    """The cells of every line that is not empty, with the number of the line."""
    try:
        reader = csv.reader(_lines(path, max_line_bytes), strict=True)
        for cells in reader:
            if cells:
                yield reader.line_num, [cell.strip() for cell in cells]
    except UnicodeDecodeError as error:
        raise DataError(f"{display_name(path)}: not valid UTF-8 ({error.reason}); save it as UTF-8") from None
    except csv.Error as error:
        raise invalid_csv(display_name(path), reader.line_num, error) from None


def _lines(path: Path, max_line_bytes: int | None) -> Iterator[str]:
    """The lines with their ends; a lone carriage return ends a line too, as in files of old spreadsheets."""
    limit, setting = (MAX_LINE_BYTES, "") if max_line_bytes is None else (max_line_bytes, "data.max_line_bytes")
    for raw in raw_lines(path, True, limit, setting, pipes=max_line_bytes is not None):
        yield from io.StringIO(raw.decode(), newline="")


def _date_column(header: list[str], columns: list[str]) -> str:
    """Column of dates: ``date``, or the only column that is not in ``columns``; empty if there is none."""
    known = set(columns)
    others = [name for name in header if name not in known]
    if "date" in others:
        return "date"
    return others[0] if len(others) == 1 else ""


def _columns(path: str, header: list[str], date: str, columns: list[str]) -> tuple[str, ...]:
    if not header:
        raise DataError(f"{path}: is empty; give a table with a header")
    known = set(header)
    if len(known) < len(header):
        twice = Counter(header).most_common(1)[0][0]
        raise DataError(f"{path}: column {twice!r} occurs more than once; rename all but one")
    for key, name in [("date", date)] * bool(date) + [("columns", name) for name in columns]:
        if name not in known:
            raise DataError(
                f"has no column {name!r} ({nearest(name, header)})",
                where=path,
                setting=f"data.{key}",
                **_OF_COLUMN[key],
            )
    chosen = tuple(columns) or tuple(name for name in header if name != date)
    if not chosen:
        raise DataError(f"{path}: has no column but {date!r}; give at least one of numbers")
    return chosen


def _value(path: str, line: int, column: str, cell: str, missing: Missing) -> float:
    if cell.lower() in MISSING:
        if missing == "previous":
            return math.nan
        raise DataError(f"{cell!r} is not a number", where=f"{path}, line {line}, column {column}", **_FILL_IN)
    try:
        value = float(cell.replace("_", "?"))  # Python would read 1_0 as 10
    except ValueError:
        raise DataError(
            f"{cell!r} is not a number",
            where=f"{path}, line {line}, column {column}",
            remedy="fix it",
            setting="data.columns",
            advice="name the columns to use in data.columns",
        ) from None
    if not math.isfinite(value):
        raise DataError(f"{path}, line {line}, column {column}: {cell!r} is not finite; give a finite number")
    if abs(value) > LARGEST:
        raise DataError(
            f"{path}, line {line}, column {column}: {cell!r} exceeds float32 (up to {LARGEST:.1e}); "
            "fix it, or use a larger unit for the column"
        )
    return value


def _moment(path: str, line: int, column: str, cell: str) -> float:
    """A date in seconds, also one without a day (2016-07) or a time zone; or a number, as it is."""
    for text in (cell, f"{cell}-01"):
        with suppress(ValueError):
            moment = datetime.fromisoformat(text)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    with suppress(ValueError):
        if abs(number := float(cell)) < 2**53:  # larger numbers have no steps of 1; NaN fails too
            return number
    raise DataError(
        f"{cell!r} is not a date",
        where=f"{path}, line {line}, column {column}",
        remedy="write it like 2016-07-01 13:00",
        setting="data.date=''",
        advice="set data.date='' and name data.columns",
    )


def _evenly_spaced(path: str, table: Table, moments: NDArray[np.float64], missing: Missing) -> Table:
    """Rows for the dates left out. Steps are counted to the nearest whole of the median one, since months differ."""
    steps = np.diff(moments)
    if not len(steps):
        return table
    times = np.rint(steps / (np.median(np.abs(steps)) or 1.0))
    if (times < 1).any():
        raise DataError(
            f"{path}, line {table.lines[1 + int(np.argmax(times < 1))]}: its date is not a step later than that of "
            "the line before; sort the lines by date, each date once"
        )
    if times.max() > 1 and missing == "refuse":
        gap = int(np.argmax(times > 1))
        dates = f"{times[gap] - 1:.0f} date{'s are' if times[gap] > 2 else ' is'} left out"
        raise DataError(f"{dates} before it", where=f"{path}, line {table.lines[gap + 1]}", **_FILL_IN)
    if times.sum() > 2 * len(moments):
        raise DataError(
            f"{path}, line {table.lines[1 + int(times.argmax())]}: {times.max() - 1:.0f} dates are left out before it; "
            "more are left out than are there, so fix the dates"
        )
    places = np.concatenate(([0], np.cumsum(times.astype(np.int64))))
    values, lines = np.full((places[-1] + 1, len(table.columns)), np.nan), np.zeros(places[-1] + 1, np.int64)
    values[places], lines[places] = table.values, table.lines
    return replace(table, values=values, lines=lines, known=np.isfinite(values))


def _carried_forward(path: str, table: Table) -> Table:
    """Replace a missing value by the last known one before it.

    A line to the next value, or that value itself, would tell a context that ends in a gap of the future.
    """
    for column, known in zip(table.columns, table.known.T, strict=True):
        if not known.any():
            raise DataError("has no number at all", where=f"{path}, column {column}", **_LEAVE_OUT)
        if not known[0]:
            raise DataError(
                f"{path}, line {table.lines[0]}, column {column}: is missing, and no value is before it; "
                "fill it in, or begin the table where every column has a value"
            )
    rows = np.arange(len(table.values))[:, None]
    last = np.maximum.accumulate(np.where(table.known, rows, 0), axis=0)
    return replace(table, values=np.take_along_axis(table.values, last, axis=0))
