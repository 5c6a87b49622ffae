"""Options that several verbs have."""

from typing import Annotated

import typer

Device = Annotated[str, typer.Option(help="Where to compute: cpu, cuda (a GPU), or auto, a GPU where there is one.")]
