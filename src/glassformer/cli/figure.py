"""``glassformer figure``: the values of one example as a picture or a table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli.io import write_errors
from glassformer.cli.options import Device, Run, SecondText, renamed_option
from glassformer.cli.run import describe_run

if TYPE_CHECKING:
    from glassformer.explain import ExampleInput

_Text = Annotated[str, typer.Argument(help="Sentence, or the path of a PNG, JPEG or CSV file.")]
_View = Annotated[
    str | None,
    typer.Argument(
        help="decoder.1.cross_attention, encoder.0.self_attention, norms, logit_lens, … [required]", show_default=False
    ),
]
_File = Annotated[
    str | None,
    typer.Argument(help="File to write: .svg .png .pdf .csv or .tex. [required]", show_default=False),
]


def command(
    run: Run,
    text: _Text,
    view: _View = None,
    file: _File = None,
    former_view: Annotated[str | None, typer.Option("--view", hidden=True)] = None,
    former_output: Annotated[str | None, typer.Option("-o", "--output", hidden=True)] = None,
    target: SecondText = None,
    head: Annotated[int | None, typer.Option(help="Head, from 0. [default: all]")] = None,
    average: Annotated[bool, typer.Option("--average", help="Average the heads.")] = False,
    words: Annotated[bool, typer.Option("--words", help="Merge the pieces of each word.")] = False,
    specials: Annotated[bool, typer.Option(help="Include the start and end tokens.")] = True,
    shifted: Annotated[
        bool,
        typer.Option("--shifted", help="Label steps of cross-attention by their input token, not by their output."),
    ] = False,
    over_training: Annotated[
        bool,
        typer.Option("--over-training", help="Draw one head of cross-attention at each checkpoint of the run (.svg)."),
    ] = False,
    device: Device = "cpu",
) -> None:
    """Draw a view of the model's values for one example."""
    from glassformer.errors import ConfigError
    from glassformer.explain import ExampleInput, examine_run, save_view
    from glassformer.explain import view as view_of
    from glassformer.explain.figures.view import known_suffix

    view = renamed_option("--view", "the argument VIEW", former_view, view)
    file = renamed_option("--output", "the argument FILE", former_output, file)
    if view is None or file is None:
        missing = "VIEW" if view is None else "FILE"
        raise ConfigError(f"Missing argument {missing!r}; write glassformer figure RUN TEXT VIEW FILE")
    known_suffix(file)
    if over_training:
        _draw_course(run, ExampleInput(text, target, "*", device), view, head or 0, shifted, file)
        return
    keep = "*.weights" if view.endswith("_attention") else "*"
    example = examine_run(run, ExampleInput(text, target, keep, device))
    describe_run(run, device=device)
    picture = view_of(example, view, head, average, words, specials, shifted)
    with write_errors(file):
        save_view(picture, file)


def _draw_course(run: str, example: "ExampleInput", view: str, head: int, shifted: bool, file: str) -> None:
    """Write the picture of a head over the training."""
    from glassformer.errors import ConfigError
    from glassformer.explain.figures.learning import learning_course, learning_svg

    if not file.lower().endswith(".svg"):
        raise ConfigError(f"{file}: --over-training draws .svg files; end the name in .svg")
    course = learning_course(run, example, view, head, shifted)
    with write_errors(file):
        Path(file).write_text(learning_svg(course), encoding="utf-8")
