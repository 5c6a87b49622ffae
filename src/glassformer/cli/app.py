"""The table of verbs, and what becomes of errors. Nothing heavy is imported here, so that ``--help`` is immediate."""

import os
import sys
import warnings
from typing import Annotated

import typer

from glassformer import __version__
from glassformer.cli import (
    align,
    average,
    classify,
    demo,
    embed,
    evaluate,
    export,
    figure,
    fill,
    forecast,
    generate,
    import_,
    info,
    score,
    tag,
    tokenize,
    train,
    translate,
    walkthrough,
)
from glassformer.cli.io import explaining, note, say, silence
from glassformer.cli.process import end_at_interrupt
from glassformer.cli.run_argument import check_run_argument

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
        say(f"glassformer {__version__}")
        raise typer.Exit


_USES = (translate, generate, fill, classify, tag, forecast, embed)
_OTHERS = (score, align, evaluate, figure, average, info, tokenize, import_, export, demo, walkthrough)
for _verb in (train, *_USES, *_OTHERS):
    _name = _verb.__name__.rpartition(".")[2].removesuffix("_")  # import is a word of Python's
    app.command(name=_name)(check_run_argument(_name, _verb.command))


def main() -> None:
    """Run one verb. What a user can mend is one line on stderr and exit code 2; no traceback hides it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    warnings.showwarning = lambda message, *_: note(f"glassformer: warning: {message}")
    try:
        code = _run()
    except KeyboardInterrupt:
        code = 130
    finally:
        waits = end_at_interrupt()
    sys.exit(130 if waits else code)


def _run() -> int | None:
    """The exit code."""
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="glassformer", standalone_mode=False)
        with explaining("standard output"):
            sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader (``| head``) has gone
        silence(sys.stdout)
        return 1
    except typer.Abort:  # Ctrl-C, which the parser has turned into its own
        return 130
    except Exception as error:
        fault = _what_can_be_mended(error)
        if fault is None:
            raise
        note(f"glassformer: error: {fault}")
        try:
            sys.stdout.flush()
        except OSError:
            silence(sys.stdout)
        return 2


def _what_can_be_mended(error: Exception) -> str | None:
    """The message for a user, or None for a fault of the program."""
    from glassformer.errors import GlassformerError

    if isinstance(error, GlassformerError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename or 'input or output'}: {error.strerror or error}"
    if hasattr(error, "format_message"):  # the parser's: which class it is depends on the version of typer
        context = getattr(error, "ctx", None)
        message = " ".join(error.format_message().split()).rstrip(".").replace("Value error, ", "")
        return f"{message}; see {context.command_path if context else 'glassformer'} --help"
    return None
