"""``glassformer align``: which word translates which, read from the attention of a trained model."""

from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli.io import note, read_text, writing
from glassformer.cli.line_warnings import LineWarnings
from glassformer.cli.options import Device, MaxLineBytes
from glassformer.storage.regular_files import MAX_LINE_BYTES

if TYPE_CHECKING:
    from glassformer.alignment import Links
    from glassformer.alignment.attention import HeadReading
    from glassformer.alignment.links import GoldLinks
    from glassformer.predict.translator import Translator

_Layer = Annotated[int | None, typer.Option(help="Decoder layer, from 0. [default: the guided head's, else the last]")]
_Head = Annotated[int | None, typer.Option(help="Head, from 0. [default: the guided one, else the mean over heads]")]
_Shifted = Annotated[
    bool | None,
    typer.Option(
        "--shifted/--naive",
        help="Read the step where a word is the input, or where it is predicted. [default: as guided, else naive]",
    ),
]


def command(
    run: Annotated[str, typer.Argument(help="Run or checkpoint folder.")],
    source: Annotated[str, typer.Argument(help="File of source lines.")],
    target: Annotated[str, typer.Argument(help="File of target lines.")],
    output: Annotated[str, typer.Option("-o", "--output", help="File to write, - for stdout.")] = "-",
    layer: _Layer = None,
    head: _Head = None,
    shifted: _Shifted = None,
    gold: Annotated[str | None, typer.Option(help="Gold links (0-0 1?2, or NAACL 2003) to report the AER.")] = None,
    best_head: Annotated[
        bool, typer.Option("--best-head", help="The head, and way to read it, of the lowest AER.")
    ] = False,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
) -> None:
    """Word alignments in the Pharaoh format (0-0 1-2: source and target word), a line each."""
    from glassformer.alignment import write_pharaoh
    from glassformer.data import parallel_lines
    from glassformer.errors import ConfigError, DataError
    from glassformer.predict.translator import Translator

    if best_head and (gold is None or (layer, head, shifted) != (None, None, None)):
        others = "--layer, --head, --shifted and --naive"
        fault = "needs --gold FILE to choose by" if gold is None else f"chooses; leave out {others}"
        raise ConfigError(f"--best-head {fault}")
    if gold == "-" and "-" in (source, target):
        raise DataError("standard input cannot be both files; name a file for one of them")
    sources, targets = parallel_lines(source, target, max_line_bytes)
    if gold is None:
        translator = Translator.load(run, device=device)
        unknown = LineWarnings({"source": source, "target": target})
        with writing(output) as stream:
            for pair in zip(sources, targets, strict=True):
                with unknown.watched(1):
                    found = translator.align(*pair, layer, head, shifted)
                stream.write(write_pharaoh(found) + "\n")
        unknown.summarize()
        return
    links = _gold(gold, sources, targets, max_line_bytes)
    translator = Translator.load(run, device=device)
    choice = None if best_head else translator.read_by(layer, head, shifted)
    proposed = _told(translator, sources, targets, links, choice)
    with writing(output) as stream:
        for one in proposed:
            stream.write(write_pharaoh(one) + "\n")


def _told(
    translator: "Translator",
    sources: list[str],
    targets: list[str],
    gold: "list[GoldLinks]",
    choice: "HeadReading | None",
) -> "list[Links]":
    """The links of ``choice``, or of the best; its error rates in both readings are told."""
    from glassformer.predict import alignment

    found = alignment.links_of_heads(translator, sources, targets)
    sure, possible = [one.sure for one in gold], [one.possible for one in gold]
    if choice is None:
        one, shifted = alignment.best_head(found, sure, possible)
    else:
        one, shifted = alignment.chosen(found, choice.layer, choice.head), choice.shifted
    ways = (("naive", False), ("shifted", True))
    rates = [f"{name} {one.error_rate(sure, way, possible):.2%}" for name, way in ways]
    n_sure, n_possible = sum(map(len, sure)), sum(map(len, possible))
    kinds = f" on {n_sure:,} sure and {n_possible - n_sure:,} possible links" if n_possible > n_sure else ""
    note(f"AER of {one.name}: {', '.join(rates)}{kinds}; written: {'shifted' if shifted else 'naive'}")
    return one.shifted if shifted else one.naive


def _gold(file: str, sources: list[str], targets: list[str], max_line_bytes: int) -> "list[GoldLinks]":
    """The true links; those of words that a line does not have are refused, such as ones that count from 1."""
    from glassformer.alignment.links import read_gold
    from glassformer.errors import DataError

    lines = list(read_text(file, max_line_bytes))
    sizes = [(len(source.split()), len(target.split())) for source, target in zip(sources, targets, strict=True)]
    try:
        return read_gold(lines, sizes)
    except DataError as error:
        comma = "," * str(error).startswith("line ")
        raise DataError(f"{file}{comma} {error}") from None
