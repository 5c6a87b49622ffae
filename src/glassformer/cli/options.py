"""Options that several verbs have."""

from typing import Annotated

import typer

Device = Annotated[str, typer.Option(help="Where to compute: cpu, cuda (a GPU), or auto, a GPU where there is one.")]
MaxLineBytes = Annotated[int, typer.Option(min=1, help="Maximum bytes of a line; a longer line is an error.")]
