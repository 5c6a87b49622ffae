"""``glassformer figure``: what a model computed for a sentence, as a picture or a table."""

from typing import Annotated

import typer

from glassformer.cli.io import explaining
from glassformer.cli.options import Device


def command(
    run: Annotated[str, typer.Argument(help="Run or checkpoint folder.")],
    text: Annotated[str, typer.Argument(help="The sentence; of images or series the path of a PNG, JPEG or CSV file.")],
    name: Annotated[
        str,
        typer.Option("--view", help="decoder.1.cross_attention, encoder.0.self_attention, norms, logit_lens, …"),
    ],
    output: Annotated[str, typer.Option("-o", "--output", help="File to write: .svg .png .pdf .csv or .tex.")],
    target: Annotated[
        str | None, typer.Option(help="Its translation (else the model's own); of a pair, the second text.")
    ] = None,
    head: Annotated[int | None, typer.Option(help="One head of attention instead of all.")] = None,
    average: Annotated[bool, typer.Option("--average", help="The mean of the heads.")] = False,
    words: Annotated[bool, typer.Option("--words", help="Whole words instead of their pieces.")] = False,
    specials: Annotated[bool, typer.Option(help="With the tokens that start and end a text.")] = True,
    shifted: Annotated[
        bool,
        typer.Option("--shifted", help="Name steps of cross-attention by what they read, not by what they predict."),
    ] = False,
    device: Device = "cpu",
) -> None:
    """Draw a view of what the model computed for a sentence, an image or a series."""
    from glassformer.cli.advice import WITHOUT_SETTINGS, in_words
    from glassformer.explain.figures.attention import Choice, view
    from glassformer.explain.figures.view import known_suffix
    from glassformer.explain.opened import ExampleInput, examine_run

    known_suffix(output)
    keep = "*.weights" if name.endswith("_attention") else "*"
    with in_words(WITHOUT_SETTINGS):
        example = examine_run(run, ExampleInput(text, target, keep, device))
    picture = view(example, name, Choice(head, average, words, specials, shifted))
    with explaining(output):
        picture.save(output)
