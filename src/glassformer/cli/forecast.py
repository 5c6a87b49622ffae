"""``glassformer forecast``: the rows that come after those of a table."""

import csv
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

import typer

from glassformer.cli.advice import WITHOUT_SETTINGS, in_words
from glassformer.cli.io import writing
from glassformer.cli.options import Device, Engine, MaxLineBytes, Precision
from glassformer.cli.process import loading
from glassformer.storage.regular_files import MAX_LINE_BYTES


def command(
    run: Annotated[str, typer.Argument(help="Run or checkpoint folder of a forecaster.")],
    file: Annotated[str, typer.Argument(help="CSV file with the columns of training; - for stdin.")] = "-",
    output: Annotated[str, typer.Option("-o", "--output", help="File to write, - for stdout.")] = "-",
    date: Annotated[
        str | None, typer.Option(help='Column of dates, "" for none. [default: date, or the only further column]')
    ] = None,
    missing: Annotated[
        Literal["refuse", "previous"], typer.Option(help="Gaps in the table: an error, or the previous value again.")
    ] = "refuse",
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
    engine: Engine = "auto",
    precision: Precision = "float32",
) -> None:
    """Forecast a table in its own units; dates go on where they are regular."""
    from glassformer.predict import Forecaster

    with loading():
        forecaster = Forecaster.load(run, device=device, engine=engine, precision=precision)
    with (
        _named(file, max_line_bytes) as path,
        in_words(WITHOUT_SETTINGS),
        in_words(OPTIONS),
        in_words(_name(path, file)),
    ):
        forecast = forecaster.forecast_file(path, date, missing)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(forecast.rows())
    with writing(output) as stream:
        stream.write(text.getvalue())


OPTIONS = {
    "set data.missing=previous": "give --missing previous",
    "which data.date names": "which --date names",
    "set data.date='' and name data.columns": "give --date '' to leave it out",
    "set data.date=''": "give --date ''",
}
"""Where this verb has an option instead of the setting."""


def _name(path: str, file: str) -> dict[str, str]:
    if path == file:
        return {}
    return {re.escape(path): "standard input" if file == "-" else file}


@contextmanager
def _named(file: str, max_line_bytes: int) -> Iterator[str]:
    """Path of a file that can be read twice; standard input and pipes are copied."""
    import tempfile
    from pathlib import Path

    from glassformer.data.files import raw_lines

    if file != "-" and not Path(file).is_fifo():
        yield file
        return
    with tempfile.NamedTemporaryFile(suffix=".csv") as copy:
        copy.writelines(raw_lines(Path(file), ends=True, limit=max_line_bytes, setting="--max-line-bytes"))
        copy.flush()
        yield copy.name
