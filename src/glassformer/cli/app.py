"""The table of commands, and the exit codes. Nothing heavy is imported here, so that ``--help`` is immediate."""

import os
import sys
import traceback
import warnings
from time import perf_counter
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
    explore,
    export,
    figure,
    fill,
    forecast,
    generate,
    import_,
    info,
    plan,
    prepare,
    score,
    tag,
    tokenize,
    train,
    translate,
    walkthrough,
)
from glassformer.cli.io import say, write_errors
from glassformer.cli.messages import Verbosity, detail, set_verbosity, silence, warn
from glassformer.cli.process import end_at_interrupt, end_process, end_with_code, end_with_launcher, owns_process
from glassformer.cli.processes import leads, print_once, started_by_launcher
from glassformer.cli.remedies import advise
from glassformer.cli.run import check_run_argument

app = typer.Typer(
    name="glassformer",
    help="The Transformer you can see through: train one, use it, look at every number in it.",
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

TOP_OPTIONS = ("-q", "--quiet", "-v", "--verbose")


@app.callback(help=app.info.help)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print results, warnings and errors only.")] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Print checkpoint, device, engine and times as well.")
    ] = False,
) -> None:
    from glassformer.errors import ConfigError

    if version:
        say(f"glassformer {__version__}")
        raise typer.Exit
    if quiet and verbose:
        raise ConfigError("--quiet and --verbose exclude each other; give one of them")
    set_verbosity(Verbosity.QUIET if quiet else Verbosity.VERBOSE if verbose else Verbosity.NORMAL)


_USES = (translate, generate, fill, classify, tag, forecast, embed)
_OTHERS = (
    *(score, align, evaluate, figure, average, info, plan, tokenize),
    *(import_, export, demo, walkthrough, explore),
)
for _verb in (train, prepare, *_USES, *_OTHERS):
    _name = _verb.__name__.rpartition(".")[2].removesuffix("_")  # ``import`` is a Python keyword
    app.command(name=_name)(advise(_name, check_run_argument(_name, _verb.command)))


def main() -> None:
    """Run one command. An error of the user is one line on stderr and exit code 2, without a traceback."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the parent process
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    warnings.showwarning = lambda text, *_: warn(str(text)) if leads() else None
    set_verbosity(Verbosity.NORMAL)
    began = perf_counter()
    if started_by_launcher():
        end_with_launcher()
    try:
        code = _run()
        if leads():
            detail(f"finished in {perf_counter() - began:.2f} s")
    except KeyboardInterrupt:
        code = 130
    except Exception:
        if not started_by_launcher():
            raise
        traceback.print_exc()
        code = 1
    finally:
        waits = end_at_interrupt()
    code = 130 if waits else code
    if started_by_launcher():
        end_process(code or 0)
    if owns_process():
        end_with_code(code or 0)
    sys.exit(code)


def _run() -> int | None:
    """The exit code."""
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="glassformer", standalone_mode=False)
        with write_errors("standard output"):
            sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader closed the pipe, as ``| head`` does
        silence(sys.stdout)
        return 1
    except typer.Abort:  # the parser's form of Ctrl-C
        return 130
    except Exception as error:
        fault = _user_error(error)
        if fault is None:
            raise
        print_once(error, fault)
        try:
            sys.stdout.flush()
        except OSError:
            silence(sys.stdout)
        return 2


def _user_error(error: Exception) -> str | None:
    """The message of an error that the user can correct, or None for a fault of the program."""
    from glassformer.errors import GlassformerError

    if isinstance(error, GlassformerError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename or 'input or output'}: {error.strerror or error}"
    if hasattr(error, "format_message"):  # an error of the parser, whose class depends on the version of typer
        context = getattr(error, "ctx", None)
        text = " ".join(error.format_message().split()).rstrip(".").replace("Value error, ", "")
        if getattr(error, "option_name", None) in TOP_OPTIONS:
            option = error.option_name  # type: ignore[attr-defined]
            return f"No such option: {option}; write it before the command: glassformer {option} …"
        return f"{text}; see {context.command_path if context else 'glassformer'} --help"
    return None
