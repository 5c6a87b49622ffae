"""``glassformer explore``: runs as a live page in the browser."""

import gc
import json
import webbrowser
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli.io import say
from glassformer.cli.messages import note
from glassformer.cli.options import MARKS_OF_RUNS, complete_runs
from glassformer.cli.process import end_process

if TYPE_CHECKING:
    from glassformer.web.settings import WebSettings


LARGEST_CONFIG = 1_000_000
"""Bytes of a ``config.json`` that is read before the run is loaded."""


def command(
    folders: Annotated[
        list[str], typer.Argument(metavar="RUN…", help="Run or checkpoint folders.", autocompletion=complete_runs)
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
    inputs: Annotated[
        list[Path] | None, typer.Option("--input", metavar="FILE", help="Image or table to look at; may be repeated.")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Open runs as a live page: every number of every input.

    The page is served to this machine only, by the address that is printed. Ctrl-C ends it.
    """
    files = tuple(inputs or ())
    for folder in folders:
        _check_folder(folder, files)
    settings = _settings(port, files)
    from glassformer.web.app import create_app
    from glassformer.web.server import address_of, open_socket, serve

    listener = open_socket(settings)
    address = address_of(listener, settings)

    def announce() -> None:
        say(address)
        note("the page is served to this machine only; Ctrl-C ends it")
        if browser:
            Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    app = create_app(folders[0], settings, folders[1:])
    app.state.explorer.worker.submit(gc.freeze)  # after the model is loaded: collections of it took 60 ms of a view
    with suppress(KeyboardInterrupt):
        serve(app, listener, announce)
    end_process(130)  # not waiting for a computation that nobody reads


def _check_folder(folder: str, files: tuple[Path, ...]) -> None:
    """Refuse a folder that is not a run, before the slow imports."""
    from glassformer.errors import CheckpointError

    if not any(Path(folder, mark).exists() for mark in MARKS_OF_RUNS):
        problem = "is neither a run nor a checkpoint" if Path(folder).exists() else "there is no such run or checkpoint"
        raise CheckpointError(f"{folder}: {problem}; name the folder of a run")
    if task := _task_in(folder):
        from glassformer.web.settings import check_explorable

        check_explorable(folder, task, files)


def _task_in(folder: str) -> str:
    """The task of a run, read without PyTorch; empty if it is not known, which loading the run explains."""
    from glassformer.tasks import DEFAULT_TASKS

    files = [Path(folder, "config.json"), *sorted(Path(folder, "checkpoints").glob("step_*/config.json"))]
    for file in reversed(files):
        with suppress(OSError, ValueError, LookupError, RecursionError, AttributeError, TypeError):
            if file.is_file() and file.stat().st_size < LARGEST_CONFIG:
                config = json.loads(file.read_bytes())
                return str(config.get("task") or DEFAULT_TASKS.get(config["model"]["kind"], ""))
    return ""


def _settings(port: int, files: tuple[Path, ...]) -> "WebSettings":
    """``ConfigError`` if the extra is not installed."""
    from glassformer.errors import ConfigError

    try:
        import fastapi
        import uvicorn
    except ImportError as error:
        raise ConfigError(f"{error.name} is not installed; pip install 'glassformer[web]'") from None
    del fastapi, uvicorn
    from glassformer.web.settings import WebSettings

    return WebSettings(port=port, inputs=files)
