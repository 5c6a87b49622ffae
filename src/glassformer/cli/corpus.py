"""Prediction of each line of a corpus: in constant memory, continued after an interruption, in shards.

The input is read in windows. A window is predicted, written, and recorded as complete; only whole windows are continued
and divided into shards. The prediction of a line does not depend on its window.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from glassformer import __version__
from glassformer.cli.corpus_progress import Account, corpus_progress, show_cursor
from glassformer.cli.inputs import Extent, LineInput, LineShard, extent, texts_of, windows
from glassformer.cli.io import (
    Output,
    clean_up_at_signal,
    defer_signals,
    is_compressed,
    open_output,
    refuse_parquet,
    regular_output,
    write_errors,
)
from glassformer.cli.lines import Line, LineWarnings, LineWindow, predict_window
from glassformer.cli.messages import note

if TYPE_CHECKING:
    from glassformer.storage.part_file import PartFile

Input = TypeVar("Input")
Result = TypeVar("Result")

WINDOW_LINES = 2048
"""Maximum lines of a window. They are sorted by length for speed, and at most as many are computed again."""
STREAM_LINES = 512
"""Maximum lines of a window if the output is a stream; its reader waits for each window."""


@dataclass(frozen=True)
class Work(Generic[Input, Result]):
    """The work of one command on each line."""

    command: str
    done: str
    """Participle of the verb, as in ``translated``."""
    predict: Callable[[list[Input]], Sequence[Result]]
    format: Callable[[Line[Input], Result], str | bytes]
    """The output for one line: text without its line end, or bytes as they are."""
    job: dict[str, str] = field(default_factory=dict)
    """Settings that decide the output, by name. A part that was begun with others is not continued."""
    identify: Callable[[Input], str] = lambda row: "\0".join(texts_of(row))
    """Text of a line that determines its prediction. A part of other lines is not continued."""
    count: Callable[[Result], int] = lambda result: 0
    """Number of ``unit`` in a prediction, for the rate."""
    unit: str = "tokens"
    head: Callable[[int], bytes] | None = None
    """The beginning of the output for a number of lines; its length is always the same."""
    content: Callable[[int], str] | None = None
    """Description of an output file for a number of lines, which is printed at its end."""
    files: dict[str, str] | None = None
    """File of each kind of text, if lines have several."""
    checks_input: bool = False
    """True to read regular inputs to their end before the first prediction, also if the output is a stream."""


class Target(NamedTuple):
    """Destination of the output, and the part of the input that goes there."""

    output: str
    path: Path | None
    """The file, which may not exist yet; None for standard output, a device or a pipe."""
    shard: LineShard | None
    restart: bool

    @property
    def compressed(self) -> bool:
        """True for a file that is named ``.gz``, also if it is a link to a file of another name."""
        return self.path is not None and is_compressed(self.output)


def check_target(
    inputs: Sequence[LineInput[Any]], output: str, shard: str | None = None, restart: bool = False
) -> Target:
    """The target of the options. Commands check them before they load a model.

    Raises:
        ConfigError: An option does not fit the input or the output.
        DataError: The output cannot be written, or an input is not text.
    """
    from glassformer.errors import ConfigError

    part = None if shard is None else LineShard.parse(shard)
    path = regular_output(output)
    if restart and path is None:
        raise ConfigError("--restart is for an output that is a file; name one with --output")
    if part and not all(one.regular for one in inputs):
        raise ConfigError(f"--shard {part}: reads the input twice; name regular files, not standard input")
    for file in (file for one in inputs for file in one.files):
        refuse_parquet(file)
    return Target(output, path, part, restart)


class Sink(Protocol):
    """Destination of the output."""

    def write(self, data: str | bytes) -> None:
        """Append the output of a line."""

    def complete(self, state: dict[str, Any]) -> None:
        """End a window; ``state`` describes its end."""


def predict_corpus(work: Work[Input, Result], inputs: Sequence[LineInput[Input]], target: Target) -> Account:
    """Predict each line of ``inputs`` and write it to the target.

    Raises:
        DataError: The input cannot be read, or the output not written, or not continued.
    """
    written = target.path or target.shard
    size = WINDOW_LINES if written else STREAM_LINES  # shards are divided alike everywhere
    regular = all(one.regular for one in inputs)
    whole = extent(inputs, size) if regular and (written or work.checks_input) else None
    every = _part(inputs, size, target.shard, whole)
    if target.path is not None:
        return _continue(work, inputs, every, target, whole)
    with open_output(target.output) as stream:
        return _stream(work, every, _StreamSink(stream))


class _StreamSink:
    """Standard output, a pipe or a device."""

    def __init__(self, stream: Output) -> None:
        self.stream = stream

    def write(self, data: str | bytes) -> None:
        assert isinstance(data, str)
        self.stream.write(data)

    def complete(self, state: dict[str, Any]) -> None:
        self.stream.flush()


class _FileSink:
    """A file, by its part; errors name the file."""

    def __init__(self, part: "PartFile") -> None:
        self.part, self.name = part, str(part.output)

    def write(self, data: str | bytes) -> None:
        with write_errors(self.name):
            self.part.write(data.encode() if isinstance(data, str) else data)

    def complete(self, state: dict[str, Any]) -> None:
        with write_errors(self.name):
            self.part.complete(state)


class _Run(Generic[Input, Result]):
    """State of a pass through the windows: the account, and a digest of the lines so far."""

    def __init__(self, work: Work[Input, Result], state: dict[str, Any] | None = None) -> None:
        self.work = work
        self.account = Account() if state is None else Account.of(state)
        self.digest = hashlib.sha256()
        self.warnings: dict[str | None, LineWarnings] = {}

    def read(self, window: LineWindow[Input]) -> None:
        """Add the lines of a window to the digest."""
        text = "".join(f"{self.work.identify(row)}\n" for row in window.rows)
        self.digest.update(text.encode("utf-8", "surrogatepass"))

    def predict(self, window: LineWindow[Input], sink: Sink) -> None:
        """Predict a window, and write it."""
        began, account, work = perf_counter(), self.account, self.work
        warnings = self.warnings.setdefault(window.file, LineWarnings(work.files or window.file))
        self.read(window)
        for line, result in predict_window(window, work.predict, warnings):
            output = work.format(line, result)
            sink.write(f"{output}\n" if isinstance(output, str) else output)
            account.tokens += work.count(result)
        account.lines += len(window.rows)
        account.empty += sum(not any(text.strip() for text in texts_of(row)) for row in window.rows)
        account.long, account.unknown = account.long + len(warnings.long), account.unknown + len(warnings.unknown)
        account.seconds += perf_counter() - began
        sink.complete({**asdict(account), "input": self.digest.hexdigest()})

    def summarize(self, scope: str = "") -> None:
        """Print the totals of the warnings; ``scope`` restricts the lines that they are about."""
        for warnings in self.warnings.values():
            warnings.summarize(scope)


def _part(
    inputs: Sequence[LineInput[Input]], size: int, shard: LineShard | None, whole: Extent | None
) -> Iterator[LineWindow[Input]]:
    """The windows of all inputs, or of one shard of them."""
    every = windows(inputs, size)
    if shard is None or whole is None:
        return every
    span = shard.of(len(whole.windows))
    return islice(every, span.start, span.stop)


def _stream(work: Work[Input, Result], every: Iterator[LineWindow[Input]], sink: Sink) -> Account:
    run = _Run(work)
    for window in every:
        run.predict(window, sink)
    run.summarize()
    return run.account


def _continue(
    work: Work[Input, Result],
    inputs: Sequence[LineInput[Input]],
    every: Iterator[LineWindow[Input]],
    target: Target,
    whole: Extent | None,
) -> Account:
    """Write a file, from its beginning or from where its part ends."""
    total = None if whole is None else whole.lines
    job = {"command": work.command, "glassformer": __version__, **work.job}
    if any(one.typed for one in inputs):
        job["window"] = "1 line"
    if target.shard and whole:
        job["shard"] = f"{target.shard} of {whole.lines:,} lines"
        span = target.shard.of(len(whole.windows))
        total = sum(whole.windows[span.start : span.stop])
    with _part_file(work, target, job) as part:
        resumed, run, sink = part.state is not None, _Run(work, part.state), _FileSink(part)
        if part.state is not None:
            _skip(run, every, part, inputs[0].name)
            note(f"continuing after {run.account.lines:,} lines in {part.path}")
        n_windows = 0
        with corpus_progress(total, run.account) as progress:
            for window in every:
                run.predict(window, sink)
                progress.show()
                n_windows += 1
        with write_errors(str(part.output)):
            part.commit(work.head(run.account.lines) if work.head else None)
    run.summarize("since the continuation, " if resumed else "")
    parts = [work.content(run.account.lines)] if work.content else []
    parts += [run.account.text(work.done, work.unit)] * bool(n_windows > 1 or resumed or target.shard)
    if parts:
        note(f"{part.output} is written: {'; '.join(parts)}")
    return run.account


@contextmanager
def _part_file(work: Work[Any, Any], target: Target, job: dict[str, str]) -> Iterator["PartFile"]:
    """The part of the output. If it is not completed, a note tells how many lines of it are."""
    from glassformer.storage.part_file import PartFile, part_path

    assert target.path is not None
    head = work.head(0) if work.head else b""
    part: PartFile | None = None

    def close() -> None:
        if part is None or part.closed:
            return
        if part.state is not None and not part.committed:
            note(f"{part.state['lines']:,} lines are complete in {part.path}; the same command continues after them")
            show_cursor()
        part.close()

    with clean_up_at_signal(close):
        # A part that is continued is checked to its end, which may take long; a signal leaves it as it is.
        path = part_path(target.path)
        begins = target.restart or not path.exists() or not path.stat().st_size
        with write_errors(str(target.path)), defer_signals() if begins else nullcontext():
            part = PartFile(target.path, job, head, target.restart, compress=target.compressed)
        yield part


def _skip(run: _Run[Input, Any], every: Iterator[LineWindow[Input]], part: "PartFile", name: str | None) -> None:
    """Read the lines of complete windows. Raises ``DataError`` if their digest differs from the recorded one."""
    from glassformer.errors import DataError
    from glassformer.storage.part_file import BEGIN_AGAIN
    from glassformer.storage.regular_files import display_name

    assert part.state is not None
    lines, expected = 0, part.state["lines"]
    while lines < expected and (window := next(every, None)) is not None:
        run.read(window)
        lines += len(window.rows)
    if lines != expected or run.digest.hexdigest() != part.state["input"]:
        part.close()  # without the note that the same command continues
        source = "the input" if name is None else display_name(name)
        raise DataError(
            f"{source}: its first {expected:,} lines are not those that {part.path} was made from; "
            f"restore them, {BEGIN_AGAIN}"
        )
