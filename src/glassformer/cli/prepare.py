"""``glassformer prepare``: tokenize training data into shards."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli.io import say
from glassformer.cli.messages import Verbosity, console, note, verbosity
from glassformer.cli.options import Configuration, Overrides, SetOverride

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from glassformer.train import Advanced

REFRESH_SECONDS = 0.1


def command(
    config: Configuration,
    overrides: Overrides = None,
    setting: SetOverride = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FOLDER", help="New folder. [default: data.shards]")
    ] = None,
    processes: Annotated[int, typer.Option(min=0, metavar="N", help="Processes. [default: one a core]")] = 0,
    shard_tokens: Annotated[int, typer.Option(min=1, metavar="N", help="Tokens in a shard.")] = 1 << 26,
) -> None:
    """Tokenize training data into shards, to train from.

    Training streams shards, so they may exceed memory. A command that was stopped goes on after its last finished
    shard. Settings change the configuration.
    """
    from glassformer.errors import ConfigError
    from glassformer.train import prepare_shards, read_config

    settings = read_config(config, [*(overrides or []), *(setting or [])])
    stored = getattr(settings.data, "shards", "")
    if output is None and not stored:
        raise ConfigError("no folder for the shards; give --output FOLDER, or set data.shards")
    folder = output or Path(stored)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    began = monotonic()
    with _bar() as bar:
        for progress in prepare_shards(settings, folder, processes or cores, shard_tokens):
            if bar is not None:
                _show(bar, progress, _divisible(settings.task))
    _report(folder, monotonic() - began)


def _divisible(task: str) -> bool:
    """True if the shards of a task divide its samples, as they do the documents of a stream; then tokens are shown."""
    from glassformer.tasks import TASKS, resolve_name

    return bool(resolve_name(TASKS[task].samples).divisible)


def _report(folder: Path, seconds: float) -> None:
    """Print the account of reading, then one line on the shards."""
    from glassformer.data.shards.shard_index import ShardIndex, counted

    index = ShardIndex.read(folder)
    for line in index.account.lines():
        note(line)
    size = sum(shard.bytes for shard in index.shards)
    samples = "" if _divisible(index.task) else f"{counted(index.samples, 'sample')}, "
    tokens, shards = counted(index.tokens, "token"), counted(len(index.shards), "shard")
    say(f"{folder}: {samples}{tokens} in {shards}, {size / 1e6:,.1f} MB, {seconds:.1f} s")


@contextmanager
def _bar() -> "Iterator[Bar | None]":
    """A progress bar on a terminal."""
    if not sys.stderr.isatty() or verbosity() <= Verbosity.QUIET:
        yield None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (BarColumn(20), TaskProgressColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), refresh_per_second=1 / REFRESH_SECONDS) as bar:
        bar.add_task("starting", total=None)
        yield bar


def _show(bar: "Bar", progress: "Advanced", divisible: bool) -> None:
    from glassformer.data.shards.shard_index import counted

    samples = [] if divisible else [counted(progress.samples, "sample")]
    text = " · ".join([*samples, counted(progress.tokens, "token"), counted(progress.shards, "shard")])
    total = sum(progress.sizes)
    size = progress.sizes[progress.file]
    done = sum(progress.sizes[: progress.file]) + min(_position(progress.reading, size), size)
    with suppress(OSError):
        bar.update(bar.task_ids[0], completed=done, total=total or None, description=text)


def _position(path: str, size: int) -> int:
    """Bytes that this process has read of a file: all if it is closed again; 0 where the system does not say it."""
    with suppress(OSError, ValueError):
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                if os.path.samefile(f"/proc/self/fd/{name}", path):
                    lines = Path(f"/proc/self/fdinfo/{name}").read_text().splitlines()
                    return int(lines[0].partition(":")[2])
        return size
    return 0
