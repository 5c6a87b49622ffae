"""``glassformer forecast``: the next rows of a table."""

import csv
import io
from typing import Annotated, Literal

import typer

from glassformer.cli.io import open_output
from glassformer.cli.options import Device, Engine, MaxLineBytes, OutputFile, Precision, run_argument
from glassformer.cli.run import load_with_engine
from glassformer.storage.regular_files import MAX_LINE_BYTES


def command(
    run: Annotated[str, run_argument("a forecaster")],
    file: Annotated[str, typer.Argument(help="CSV file with the columns of training; - is standard input.")] = "-",
    output: OutputFile = "-",
    date: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help='Column of dates, "" for none. [default: date, or the only other column]'),
    ] = None,
    missing: Annotated[
        Literal["refuse", "previous"], typer.Option(help="Gaps in the table: an error, or the previous value again.")
    ] = "refuse",
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
    engine: Engine = "auto",
    precision: Precision = "float32",
) -> None:
    """Forecast the next rows of a table, in its own units.

    Dates at regular intervals are continued.
    """
    from glassformer.predict import Forecaster

    forecaster = load_with_engine(Forecaster.load, run, device, engine, precision)
    forecast = forecaster.forecast_file(file, date, missing, max_line_bytes)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(forecast.rows())
    with open_output(output) as stream:
        stream.write(text.getvalue())
