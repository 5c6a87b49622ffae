"""``glassformer fill``: what stands behind ``[MASK]``."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli.io import chunks, telling_lines, writing
from glassformer.cli.line_warnings import LineWarnings
from glassformer.cli.options import Device, Engine, MaxLineBytes, Precision
from glassformer.cli.process import loading
from glassformer.storage.regular_files import MAX_LINE_BYTES

if TYPE_CHECKING:
    from glassformer.predict import Filled


def command(
    run: Annotated[str, typer.Argument(help="Run or checkpoint folder of a masked language model.")],
    text: Annotated[str | None, typer.Argument(help='"A [MASK] runs."; none: a text a line from stdin.')] = None,
    output: Annotated[str, typer.Option("-o", "--output", help="File to write, - for stdout.")] = "-",
    top: Annotated[int, typer.Option(min=1, help="Candidates for each mask.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a text.")] = False,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
    engine: Engine = "auto",
    precision: Precision = "float32",
) -> None:
    """Candidates for every [MASK] of a text, with their probabilities."""
    from glassformer.predict import Filler

    with loading():
        filler, done = Filler.load(run, device=device, engine=engine, precision=precision), 0
    unknown = LineWarnings("-" if text is None else None)
    with writing(output) as stream:
        for texts in chunks("-", 512, max_line_bytes) if text is None else [[text]]:
            with telling_lines("-" if text is None else None, done), unknown.watched(len(texts)):
                found = filler.fill(texts, top)
            for one, filled in zip(texts, found, strict=True):
                done += 1
                stream.write(_json(one, filled, unknown.flags(done)) if as_json else _text(filled))
            stream.flush()
    unknown.summarize()


def _text(filled: "Filled") -> str:
    """The likeliest text, then a line for each candidate: which mask, the word, how probable it is."""
    rows = [
        f"  {number}  {one.probability:7.2%}  {one.text or one.token}"
        for number, blank in enumerate(filled.blanks, start=1)
        for one in blank
    ]
    return "\n".join([filled.text, *rows]) + "\n"


def _json(text: str, filled: "Filled", flags: dict[str, list[str]]) -> str:
    return json.dumps({"source": text, **flags, **asdict(filled)}, ensure_ascii=False) + "\n"
