"""``glassformer forecast``: the rows that come after those of a table."""

import csv
import io
from pathlib import Path
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
    piped = file == "-" or Path(file).is_fifo()
    with in_words(WITHOUT_SETTINGS), in_words(OPTIONS):
        forecast = forecaster.forecast_file(file, date, missing, max_line_bytes if piped else None)
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
