"""``glassformer align``: which word translates which, read from the attention of a trained model."""

from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli.streams import note, read_text, writing

if TYPE_CHECKING:
    from glassformer.evaluate import Links
    from glassformer.translator import Translator


def command(
    run: Annotated[str, typer.Argument(help="Run or checkpoint folder.")],
    source: Annotated[str, typer.Argument(help="File of source lines.")],
    target: Annotated[str, typer.Argument(help="File of target lines.")],
    output: Annotated[str, typer.Option("-o", "--output", help="File to write, - for stdout.")] = "-",
    layer: Annotated[int | None, typer.Option(help="Of the decoder, from 0; the last when not given.")] = None,
    head: Annotated[int | None, typer.Option(help="One head; the mean of the layer's when not given.")] = None,
    shifted: Annotated[
        bool, typer.Option("--shifted", help="Read where a word is the input, not where it is predicted.")
    ] = False,
    gold: Annotated[str | None, typer.Option(help="File of true links, 0-0 1-2: tell the error rate (AER).")] = None,
    best_head: Annotated[
        bool, typer.Option("--best-head", help="The head, and way to read it, of the lowest AER.")
    ] = False,
) -> None:
    """Word alignments in the Pharaoh format (0-0 1-2: source and target word), a line each."""
    from glassformer.config import ConfigError, DataError
    from glassformer.data import parallel_lines
    from glassformer.evaluate import write_pharaoh
    from glassformer.translator import Translator

    if best_head and (gold is None or shifted or (layer, head) != (None, None)):
        fault = "needs --gold FILE to choose by" if gold is None else "chooses; leave out --layer, --head and --shifted"
        raise ConfigError(f"--best-head {fault}")
    if gold == "-" and "-" in (source, target):
        raise DataError("standard input cannot be both files; name a file for one of them")
    sources, targets = parallel_lines(source, target)
    chosen = -1 if layer is None else layer
    if gold is None:
        translator = Translator.load(run)
        with writing(output) as stream:
            for pair in zip(sources, targets, strict=True):
                stream.write(write_pharaoh(translator.align(*pair, chosen, head, shifted)) + "\n")
        return
    links = _gold(gold, sources, targets)
    choice = None if best_head else (chosen, head, shifted)
    proposed = _told(Translator.load(run), sources, targets, links, choice)
    with writing(output) as stream:
        for one in proposed:
            stream.write(write_pharaoh(one) + "\n")


def _told(
    translator: "Translator",
    sources: list[str],
    targets: list[str],
    gold: "list[Links]",
    choice: tuple[int, int | None, bool] | None,
) -> "list[Links]":
    """The links of ``choice`` (layer, head, shifted), or of the best; its error rates in both readings are told."""
    from glassformer.explain import alignment

    found = alignment.links_of_heads(translator, sources, targets)
    if choice is None:
        one, shifted = alignment.best_head(found, gold)
    else:
        one, shifted = alignment.chosen(found, *choice[:2]), choice[2]
    rates = [f"{name} {one.error_rate(gold, way):.2%}" for name, way in (("naive", False), ("shifted", True))]
    note(f"AER of {one.name}: {', '.join(rates)}; written: {'shifted' if shifted else 'naive'}")
    return one.shifted if shifted else one.naive


def _gold(file: str, sources: list[str], targets: list[str]) -> "list[Links]":
    """The true links; those of words that a line does not have are refused, such as ones that count from 1."""
    from glassformer.config import DataError
    from glassformer.evaluate import read_pharaoh

    lines = list(read_text(file))
    if len(lines) != len(sources):
        raise DataError(f"{file} has {len(lines):,} lines and the text {len(sources):,}; give one for each")
    found: list[Links] = []
    for number, (line, source, target) in enumerate(zip(lines, sources, targets, strict=True), start=1):
        try:
            links = read_pharaoh(line)
        except DataError as error:
            raise DataError(f"{file}, line {number}: {error}") from None
        sizes = len(source.split()), len(target.split())
        for link in sorted(links):
            if not (link[0] < sizes[0] and link[1] < sizes[1]):
                raise DataError(
                    f"{file}, line {number}: {link[0]}-{link[1]} links words that are not there: the line has "
                    f"{sizes[0]} and {sizes[1]}, counted from 0"
                )
        found.append(links)
    return found
