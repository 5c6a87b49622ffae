"""Options that several commands have, and former spellings."""

from typing import Annotated, Literal

import typer

from glassformer.cli.io import note

Device = Annotated[str, typer.Option(help="Where to compute: cpu, cuda (a GPU), or auto, a GPU where there is one.")]
Engine = Annotated[
    Literal["auto", "torch", "native"], typer.Option(help="Code that computes the model; auto picks the fastest.")
]
Precision = Annotated[
    Literal["float32", "bfloat16", "int8"], typer.Option(help="Type of matrix products; bfloat16 is for GPUs.")
]
MaxLineBytes = Annotated[int, typer.Option(min=1, help="Maximum bytes of a line; a longer line is an error.")]


def former_option(former: str, present: str, given: bool, both: bool) -> bool:
    """Whether a former spelling was given, and say so on stderr; ``ConfigError`` if the present one was given too.

    Former spellings are hidden options. They keep working for a release.
    """
    if not given:
        return False
    if both:
        from glassformer.errors import ConfigError

        raise ConfigError(f"{former} is now {present}; give one of them")
    note(f"glassformer: warning: {former} is now {present}; the former spelling will be removed")
    return True
