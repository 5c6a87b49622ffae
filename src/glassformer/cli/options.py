"""Options that several commands have, and former spellings."""

from typing import Annotated, Literal, TypeVar

import typer

from glassformer.cli.io import note

T = TypeVar("T")

Device = Annotated[str, typer.Option(help="Where to compute: cpu, cuda (a GPU), or auto, a GPU where there is one.")]
Engine = Annotated[
    Literal["auto", "torch", "native"], typer.Option(help="Code that computes the model; auto picks the fastest.")
]
Precision = Annotated[
    Literal["float32", "bfloat16", "int8"], typer.Option(help="Type of matrix products; bfloat16 is for GPUs.")
]
MaxLineBytes = Annotated[int, typer.Option(min=1, help="Maximum bytes of a line; a longer line is an error.")]


def renamed_option(former: str, present: str, former_value: T | None, value: T | None) -> T | None:
    """The value of an option that was renamed, given by its present or its former spelling.

    The former spelling is a hidden option. It keeps working for a release, with a note on stderr. ``ConfigError`` if
    both are given.
    """
    if former_value is None:
        return value
    if value is not None:
        from glassformer.errors import ConfigError

        raise ConfigError(f"{former} is now {present}; give one of them")
    note(f"glassformer: warning: {former} is now {present}; the former spelling will be removed")
    return former_value
