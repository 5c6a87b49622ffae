"""The table of verbs, and what becomes of errors. Nothing heavy is imported here, so that ``--help`` is immediate."""

import os
import sys
from typing import Annotated

import typer

from glassformer import __version__
from glassformer.cli import average, demo, evaluate, info, score, tokenize, train, translate

app = typer.Typer(
    name="glassformer",
    help="The Transformer you can see through: train one on your own text, use it, look at every number in it.",
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(help=app.info.help)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Show the version and end.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"glassformer {__version__}")
        raise typer.Exit


for _verb in (train, translate, score, evaluate, average, info, tokenize, demo):
    app.command(name=_verb.__name__.rpartition(".")[2])(_verb.command)


def main() -> None:
    """Run one verb. What a user can mend is one line on stderr and exit code 2; no traceback hides it."""
    try:
        app()
    except BrokenPipeError:
        # The reader (``| head``) has gone; the interpreter must not complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (ValueError, OSError) as error:
        from glassformer.config import GlassformerError

        if not isinstance(error, GlassformerError | OSError):
            raise
        print(f"glassformer: error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
