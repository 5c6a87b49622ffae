"""``glassformer train``: train a model as configured, in a run folder."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli.jobs import began, job_id, record
from glassformer.cli.messages import Verbosity, clock, console, detail, message, note, verbosity
from glassformer.cli.options import Configuration, Overrides, SetOverride
from glassformer.cli.process import prepare_training
from glassformer.cli.processes import joined, launch, leads, started_by_launcher, threads_of_one

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from glassformer.train import Corrupt, Event, Finished, Progress, Skipped, Started, Stepped, Validated

REFRESH_SECONDS = 0.1
"""Minimum time between updates of the progress bar."""


def command(
    config: Configuration,
    overrides: Overrides = None,
    setting: SetOverride = None,
    run: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Run folder. [default: runs/NAME-OF-CONFIG]")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run, bit by bit.")] = False,
    processes: Annotated[
        int, typer.Option(min=1, help="Processes on this machine that share each batch; for several, see the guide.")
    ] = 1,
) -> None:
    """Train a model on your own text.

    Settings change the configuration.
    """
    from glassformer.models.device import choose_device
    from glassformer.storage.run_folder import RunFolder
    from glassformer.train import RunConfig, Started, read_config, train
    from glassformer.train.distributed import World
    from glassformer.train.function import run_folder
    from glassformer.train.resume import threads_to_resume

    def read() -> RunConfig:
        return read_config(config, [*(overrides or []), *(setting or [])])

    path = run or Path("runs") / config.stem
    if processes > 1 and not started_by_launcher():
        raise typer.Exit(launch(processes, read().train.wait_seconds))
    caught: list[int] = []
    job = job_id()
    with joined(processes, read) as settings, ExitStack() as stack:
        world = World.current()
        continued = world.from_leader(lambda: began(path, job) and bool(RunFolder(path).checkpoints()))
        if continued and not resume and world.leads:
            note(f"resuming {path}: {job} began it")
        resume = world.of_leader(resume) or continued
        stored = world.from_leader(lambda: threads_to_resume(RunFolder.open(path), world.size) if resume else 0)
        world.together(lambda: prepare_training(settings.train.threads or stored or threads_of_one()))
        folder = run_folder(path, resume)
        if world.leads:
            detail(f"device: {choose_device(settings.train.device, 'train.device')}")
        with Screen(settings.train.max_steps, path, world.leads) as screen:
            for event in train(settings, folder, resume, lambda: bool(caught), each_step=screen.bar is not None):
                if isinstance(event, Started):  # until now there is nothing to save, and a signal ends the command
                    stack.enter_context(signals(caught))
                    world.from_leader(lambda: record(path, job))
                screen.show(event)
    if caught:
        raise typer.Exit(128 + caught[0])


@contextmanager
def signals(caught: list[int] | None = None) -> Iterator[list[int]]:
    """List of the first SIGINT, SIGTERM or SIGHUP, ``caught`` or a new one; the second one has its usual effect.

    A signal that was ignored stays ignored.
    """
    caught = [] if caught is None else caught
    before = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def notice(number: int, frame: object) -> None:
        caught.append(number)
        for each, handler in before.items():
            signal.signal(each, handler)
        if leads():
            message("saving after this step; once more to stop at once")

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, notice)
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Screen:
    """Progress on stderr: a bar on a terminal, else plain lines; nothing but warnings if the command is quiet.

    A closed stderr (``2>&1 | head``, a closed terminal) does not end the training; ``metrics.jsonl`` has everything.
    """

    def __init__(self, max_steps: int, run: Path | None = None, prints: bool = True):
        self.prints = prints
        self.max_steps = max_steps
        self.run = run
        self.bar: Bar | None = None
        self.task: TaskID | None = None
        self.unit = ""
        self.moved = 0.0

    def __enter__(self) -> "Screen":
        if self.prints and sys.stderr.isatty() and verbosity() > Verbosity.QUIET:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (BarColumn(20), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
            self.bar = Progress(*columns, console=console(stderr=True))
            self.bar.start()
            self.task = self.bar.add_task("starting", total=self.max_steps)
        return self

    def __exit__(self, *exception: object) -> None:
        if self.bar is not None:
            with suppress(OSError):
                self.bar.stop()

    def show(self, event: "Event") -> None:
        if not self.prints:
            return
        with suppress(OSError):
            getattr(self, f"_{type(event).__name__.lower()}")(event)

    def _say(self, text: str) -> None:
        self._print(text, note)

    def _warn(self, text: str) -> None:
        self._print(text, message)

    def _print(self, text: str, without_bar: Callable[[str], None]) -> None:
        if self.bar is None:
            without_bar(text)
        else:
            self.bar.console.print(text, markup=False)

    def _started(self, event: "Started") -> None:
        self.unit = event.unit
        if self.bar is not None and self.task is not None:
            self.bar.reset(self.task, completed=event.step, description="starting")  # and its clock
        if self.run is not None:
            self._say(f"run: {self.run}")
        for line in event.warnings:
            self._warn(f"warning: {line}; resuming from an older checkpoint")
        for line in event.overrides:
            self._say(f"override from step {event.step:,} on: {line}")
        for line in event.accounts:
            self._say(line)
        self._say(
            f"{event.parameters:,} parameters; {event.batches_per_epoch:,} "
            f"{'batch' if event.batches_per_epoch == 1 else 'batches'} an epoch, "
            f"{event.padding_share:.1%} padding; step {event.step:,} of {event.max_steps:,}"
        )
        self._say(f"engine: {event.engine}")

    def _stepped(self, event: "Stepped") -> None:
        now = monotonic()
        if self.bar is not None and self.task is not None and now - self.moved >= REFRESH_SECONDS:
            self.moved = now
            self.bar.update(self.task, completed=event.step)

    def _progress(self, event: "Progress") -> None:
        rate = f"{event.target_tokens_per_second:,.0f} {self.unit}/s"
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=event.step, description=f"loss {event.loss:.3f} · {rate}")
            return
        left = (self.max_steps - event.step) * event.seconds / event.step
        self._say(
            f"step {event.step:,}/{self.max_steps:,}  epoch {event.epoch + 1}  loss {event.loss:.4f}  "
            f"{'' if event.nll is None else f'nll {event.nll:.4f}  '}lr {event.learning_rate:.2e}  {rate}  "
            f"{clock(event.seconds)} gone, {clock(left)} left"
        )

    def _validated(self, event: "Validated") -> None:
        best = "  best so far" if event.best else ""
        self._say(f"step {event.step:,}  validation: {_scores(event.scores)}  after {clock(event.seconds)}{best}")
        if event.warning:
            self._warn(f"warning: {event.warning}")

    def _skipped(self, event: "Skipped") -> None:
        self._warn(f"step {event.step:,} skipped: loss {event.loss}, gradient norm {event.gradient_norm}")

    def _corrupt(self, event: "Corrupt") -> None:
        self._warn(f"warning: {event.shard}: {event.reason}; the training goes on without its {event.content}")

    def _finished(self, event: "Finished") -> None:
        self._say(f"step {event.step:,}: {event.reason}; {clock(event.seconds)} of training")


def _scores(scores: dict[str, float]) -> str:
    """Scores by their usual names; negative log-likelihood is left out beside perplexity."""
    parts = []
    for name, value in scores.items():
        if name == "nll" and "perplexity" in scores:
            continue
        label = {"bleu": "BLEU", "chrf": "chrF2", "mse": "MSE", "mae": "MAE"}.get(name, name.replace("_", " "))
        parts.append(f"{label} {value:.2%}" if name in ("accuracy", "f1") else f"{label} {_plain(value)}")
    return "  ".join(parts)


def _plain(value: float) -> str:
    return f"{value:.2f}" if value >= 10 else f"{value:.4f}"
