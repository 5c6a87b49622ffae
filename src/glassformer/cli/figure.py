"""``glassformer figure``: what a model computed for a sentence, as a picture or a table."""

from typing import Annotated

import typer

from glassformer.cli.streams import explaining


def command(
    run: Annotated[str, typer.Argument(help="Run or checkpoint folder.")],
    text: Annotated[str, typer.Argument(help="The source sentence.")],
    name: Annotated[
        str,
        typer.Option("--view", help="decoder.1.cross_attention, encoder.0.self_attention, positions, norms, …"),
    ],
    output: Annotated[str, typer.Option("-o", "--output", help="File to write: .svg .png .pdf .csv or .tex.")],
    target: Annotated[str | None, typer.Option(help="Its translation; the model's own when not given.")] = None,
    head: Annotated[int | None, typer.Option(help="One head of attention instead of all.")] = None,
    average: Annotated[bool, typer.Option("--average", help="The mean of the heads.")] = False,
    words: Annotated[bool, typer.Option("--words", help="Whole words instead of their pieces.")] = False,
    specials: Annotated[bool, typer.Option(help="With the tokens that start and end a text.")] = True,
) -> None:
    """Draw a view of what the model computed for a sentence."""
    from glassformer.explain import examine
    from glassformer.explain.view import known_suffix
    from glassformer.translator import Translator

    known_suffix(output)
    keep = "*.weights" if name.endswith("_attention") else "*"
    view = examine(Translator.load(run), text, target, keep).view(name, head, average, words, specials)
    with explaining(output):
        view.save(output)
