"""``glassformer align``: word alignments from the attention of a translator."""

from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli.io import open_output, read_text
from glassformer.cli.lines import predict_lines
from glassformer.cli.messages import message
from glassformer.cli.options import Device, MaxLineBytes, OutputFile, Run, SourceLines, TargetLines
from glassformer.cli.run import load
from glassformer.storage.regular_files import MAX_LINE_BYTES

if TYPE_CHECKING:
    from glassformer.alignment import Links
    from glassformer.alignment.attention import HeadReading
    from glassformer.alignment.links import GoldLinks
    from glassformer.predict.translator import Translator

_Layer = Annotated[int | None, typer.Option(help="Decoder layer, from 0. [default: of the guided head, else the last]")]
_Head = Annotated[int | None, typer.Option(help="Head, from 0. [default: the guided one, else the mean of all]")]
_BestHead = Annotated[bool, typer.Option("--best-head", help="Choose the head and the reading of the lowest AER.")]
_Shifted = Annotated[
    bool | None,
    typer.Option(
        "--shifted/--naive",
        help="Use the step that reads a word, or the step that predicts it. [default: as guided, else naive]",
    ),
]


def command(
    run: Run,
    source: SourceLines,
    target: TargetLines,
    output: OutputFile = "-",
    layer: _Layer = None,
    head: _Head = None,
    shifted: _Shifted = None,
    gold: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Gold links (0-0 1?2, or NAACL 2003); the error rate (AER) is reported."),
    ] = None,
    best_head: _BestHead = False,
    max_line_bytes: MaxLineBytes = MAX_LINE_BYTES,
    device: Device = "cpu",
) -> None:
    """Align the words of translated lines.

    The output is in Pharaoh format: one line per pair, with links from source to target words, as in 0-0 1-2.
    """
    from glassformer.alignment import write_pharaoh
    from glassformer.data import parallel_lines
    from glassformer.errors import DataError
    from glassformer.predict.translator import Translator

    if best_head:
        _check_best_head(gold, (layer, head, shifted))
    if gold == "-" and "-" in (source, target):
        raise DataError("standard input cannot be both files; name a file for one of them")
    sources, targets = parallel_lines(source, target, max_line_bytes)
    if gold is None:
        translator = load(Translator.load, run, device=device)
        pairs = ([pair] for pair in zip(sources, targets, strict=True))
        with open_output(output) as stream:
            unknown = predict_lines(
                stream,
                pairs,
                lambda batch: [translator.align(*pair, layer, head, shifted) for pair in batch],
                lambda _, links: write_pharaoh(links),
                files={"source": source, "target": target},
            )
        unknown.summarize()
        return
    gold_links = _read_gold(gold, sources, targets, max_line_bytes)
    translator = load(Translator.load, run, device=device)
    choice = None if best_head else translator.read_by(layer, head, shifted)
    aligned = _align_with_gold(translator, sources, targets, gold_links, choice)
    with open_output(output) as stream:
        for links in aligned:
            stream.write(write_pharaoh(links) + "\n")


def _check_best_head(gold: str | None, reading: tuple[int | None, int | None, bool | None]) -> None:
    """Raise ``ConfigError`` if ``--best-head`` has no gold links, or a head is chosen beside it."""
    from glassformer.errors import ConfigError

    if gold is None:
        raise ConfigError("--best-head needs --gold FILE to choose by")
    if reading != (None, None, None):
        raise ConfigError("--best-head chooses; leave out --layer, --head, --shifted and --naive")


def _align_with_gold(
    translator: "Translator",
    sources: list[str],
    targets: list[str],
    gold: "list[GoldLinks]",
    choice: "HeadReading | None",
) -> "list[Links]":
    """The links of ``choice``, or of the best head; its error rates in both readings are printed."""
    from glassformer.predict import alignment

    heads = alignment.links_of_heads(translator, sources, targets)
    sure, possible = [one.sure for one in gold], [one.possible for one in gold]
    if choice is None:
        links, shifted = alignment.best_head(heads, sure, possible)
    else:
        links, shifted = alignment.chosen(heads, choice.layer, choice.head), choice.shifted
    readings = (("naive", False), ("shifted", True))
    rates = [f"{name} {links.error_rate(sure, reading, possible):.2%}" for name, reading in readings]
    n_sure, n_possible = sum(map(len, sure)), sum(map(len, possible))
    kinds = f" on {n_sure:,} sure and {n_possible - n_sure:,} possible links" if n_possible > n_sure else ""
    message(f"AER of {links.name}: {', '.join(rates)}{kinds}; written: {'shifted' if shifted else 'naive'}")
    return links.shifted if shifted else links.naive


def _read_gold(file: str, sources: list[str], targets: list[str], max_line_bytes: int) -> "list[GoldLinks]":
    """Gold links; a link to a word that its line does not have is an error, as in files that count from 1."""
    from glassformer.alignment.links import read_gold
    from glassformer.errors import DataError

    lines = list(read_text(file, max_line_bytes))
    sizes = [(len(source.split()), len(target.split())) for source, target in zip(sources, targets, strict=True)]
    try:
        return read_gold(lines, sizes)
    except DataError as error:
        raise error.at(file) from None
