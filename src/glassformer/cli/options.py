"""Options that several verbs have."""

from typing import Annotated, Literal

import typer

Device = Annotated[str, typer.Option(help="Where to compute: cpu, cuda (a GPU), or auto, a GPU where there is one.")]
Engine = Annotated[
    Literal["auto", "torch", "native"], typer.Option(help="Code that computes the model; auto picks the fastest.")
]
Precision = Annotated[
    Literal["float32", "bfloat16", "int8"], typer.Option(help="Type of matrix products; bfloat16 is for GPUs.")
]
MaxLineBytes = Annotated[int, typer.Option(min=1, help="Maximum bytes of a line; a longer line is an error.")]
