"""``glassformer fill``: candidates for ``[MASK]``."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli.io import chunks, open_output
from glassformer.cli.lines import Line, predict_lines
from glassformer.cli.options import Device, Engine, MaxLineBytes, OutputFile, Precision, run_argument
from glassformer.cli.run import load_with_engine
from glassformer.storage.regular_files import MAX_LINE_BYTES

if TYPE_CHECKING:
    from glassformer.predict import Filled


def command(
    run: Annotated[str, run_argument("a masked language model")],
    text: Annotated[str | None, typer.Argument(help='Text, as in "A [MASK] runs." [default: lines of stdin]')] = None,
    output: OutputFile = "-",
    top: Annotated[int, typer.Option(min=1, help="Number of candidates per mask.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per text.")] = False,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
    engine: Engine = "auto",
    precision: Precision = "float32",
) -> None:
    """Fill in every [MASK] of a text, with probabilities."""
    from glassformer.predict import Filler

    filler = load_with_engine(Filler.load, run, device, engine, precision)
    file, batches = ("-", chunks("-", 512, max_line_bytes)) if text is None else (None, iter([[text]]))
    with open_output(output) as stream:
        write = _json if as_json else _text
        unknown = predict_lines(stream, batches, lambda texts: filler.fill(texts, top), write, file)
    unknown.summarize()


def _text(line: Line[str], filled: "Filled") -> str:
    """The most probable text, then one line per candidate: number of the mask, probability, word."""
    rows = [
        f"  {number}  {one.probability:7.2%}  {one.text or one.token}"
        for number, blank in enumerate(filled.blanks, start=1)
        for one in blank
    ]
    return "\n".join([filled.text, *rows])


def _json(line: Line[str], filled: "Filled") -> str:
    return json.dumps({"source": line.value, **line.flags, **asdict(filled)}, ensure_ascii=False)
