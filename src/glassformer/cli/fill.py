"""``glassformer fill``: candidates for ``[MASK]``."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli.io import chunks, open_output
from glassformer.cli.line_warnings import LineWarnings, name_lines
from glassformer.cli.options import Device, Engine, MaxLineBytes, OutputFile, Precision, run_argument
from glassformer.cli.run import describe_engine, load
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

    filler = load(Filler.load, run, device=device, engine=engine, precision=precision)
    describe_engine(filler)
    file = "-" if text is None else None
    unknown, done = LineWarnings(file), 0
    with open_output(output) as stream:
        for texts in chunks("-", 512, max_line_bytes) if text is None else [[text]]:
            with name_lines(file, done), unknown.collect(len(texts)):
                results = filler.fill(texts, top)
            for one, filled in zip(texts, results, strict=True):
                done += 1
                stream.write(_json(one, filled, unknown.flags(done)) if as_json else _text(filled))
            stream.flush()
    unknown.summarize()


def _text(filled: "Filled") -> str:
    """The most probable text, then one line per candidate: number of the mask, probability, word."""
    rows = [
        f"  {number}  {one.probability:7.2%}  {one.text or one.token}"
        for number, blank in enumerate(filled.blanks, start=1)
        for one in blank
    ]
    return "\n".join([filled.text, *rows]) + "\n"


def _json(text: str, filled: "Filled", flags: dict[str, list[str]]) -> str:
    return json.dumps({"source": text, **flags, **asdict(filled)}, ensure_ascii=False) + "\n"
