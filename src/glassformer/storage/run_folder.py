"""A run folder: what one training leaves on disk, and the rules that keep it usable whenever the process dies.

``config.toml`` and ``job.json`` (written by the caller), ``metrics.jsonl``, ``checkpoints/step_00000500/``,
``best.json``, ``lock``.
"""

import fcntl
import json
import math
import os
import re
import secrets
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from torch import Tensor

from glassformer.errors import CheckpointError, nearest
from glassformer.storage.atomic import clear_leftovers, delete_checkpoint, write_atomically
from glassformer.storage.checkpoint import (
    CONFIG,
    LARGEST,
    STATE_VALUES,
    WEIGHTS,
    TrainingState,
    save_checkpoint,
    verify,
)
from glassformer.storage.manifest import MANIFEST, digested, parse_digested, parse_object, refusing
from glassformer.storage.regular_files import MEGABYTE, read_regular

CHECKPOINTS, LOCK, BEST, JOB = "checkpoints", "lock", "best.json", "job.json"
INTERRUPTED = "interrupted"
"""Key in the training state of a checkpoint that was saved because training was stopped between scheduled saves."""
LARGEST_METRICS = 1024 * MEGABYTE
_STEP = re.compile(r"step_(\d{8,})")


class Latest(NamedTuple):
    """The newest intact checkpoint, and a line for each newer one that is damaged."""

    path: Path
    step: int
    warnings: list[str]


@dataclass(frozen=True)
class Best:
    """The checkpoint with the best ``value`` of ``metric`` so far."""

    checkpoint: Path
    metric: str
    value: float


class RunFolder:
    """The folder of one run. Everything that writes is for the process that holds ``lock()``; reading needs none."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config_path = self.path / "config.toml"
        self.metrics_path = self.path / "metrics.jsonl"
        self.checkpoints_path = self.path / CHECKPOINTS
        self._is_new = False

    @classmethod
    def create(cls, path: str | Path) -> Self:
        """A new run. A folder that holds anything is refused, so that nothing is ever overwritten.

        Only a start that came to no checkpoint may be made again: ``lock`` tells that it was one.
        """
        run = cls(path)
        with refusing(f"{run.path}: cannot be created"):
            run._is_new = not run.path.exists()
            run.path.mkdir(parents=True, exist_ok=True)
            names = {item.name for item in run.path.iterdir()}
            other_files = set() if LOCK in names else names - {CHECKPOINTS}
            if run.checkpoints() or run.config_path.name in other_files:
                raise run._begun()
            if other_files:
                raise CheckpointError(f"{run.path}: holds other files and no run; name another folder with --run")
            run.checkpoints_path.mkdir(exist_ok=True)
        return run

    def clear(self) -> None:
        """Forget what a start that came to no checkpoint has left; a run with one is refused."""
        if self.checkpoints():
            raise self._begun()
        with refusing(f"{self.path}: cannot be cleared of an earlier start"):
            (self.path / BEST).unlink(missing_ok=True)
        self.truncate_metrics(-1)

    def discard(self) -> None:
        """Remove the files of a start without a checkpoint, and the folder if it is new and empty.

        What explains a failure stays, and so does everything that is not of a run.
        """
        with suppress(OSError):
            self.checkpoints_path.rmdir()
            self.config_path.unlink(missing_ok=True)
            self.metrics_path.unlink(missing_ok=True)
            (self.path / JOB).unlink(missing_ok=True)
            if [item.name for item in self.path.iterdir()] == [LOCK]:
                (self.path / LOCK).unlink()
                if self._is_new:
                    self.path.rmdir()

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """A run that exists."""
        run = cls(path)
        with refusing(f"{run.path}: cannot be read"):
            if (run.path / MANIFEST).is_file():
                raise CheckpointError(f"{run.path}: is a checkpoint, not a run; {_run_of(run.path)}")
            if not run.checkpoints_path.is_dir():
                raise CheckpointError(f"{run.path}: no run is there; {nearby(run.path)}")
        return run

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the exclusive lock for training in this folder. The system releases it when the process ends.

        The folder itself is locked, so that deleting the file ``lock`` does not release it. The file is locked too,
        for network file systems that lock only files. Leftovers of killed saves are deleted on entering.
        """
        with refusing(f"{self.path}: cannot be locked"):
            self.checkpoints_path.mkdir(parents=True, exist_ok=True)  # gone, if an earlier start was discarded
            folder, handle = _OpenFolder(self.path), (self.path / LOCK).open("a+")
        for resource in (folder, handle):  # a loader's worker must not keep the lock of a killed parent
            os.register_at_fork(after_in_child=resource.close)
        with closing(folder), handle:
            _take(folder.descriptor, handle.fileno(), self.path)
            with refusing(f"{self.path}: cannot be cleared of unfinished saves"):
                clear_leftovers(self.path)
                clear_leftovers(self.checkpoints_path)
            yield

    def save(
        self,
        step: int,
        *,
        config: dict[str, Any],
        tokenizer: dict[str, Any] | bytes,
        weights: Mapping[str, Tensor],
        training: TrainingState | None = None,
    ) -> Path:
        """Save ``checkpoints/step_…`` and return it.

        A checkpoint of the same step is replaced. Ones of later steps, which a resumed run found damaged or went back
        behind, are renamed to ``abandoned_…``: they must not count as the newest.
        """
        path = self.make_way(step)
        save_checkpoint(path, config=config, tokenizer=tokenizer, weights=weights, training=training, replace=True)
        self.abandon_after(step)
        return path

    def checkpoint_path(self, step: int) -> Path:
        """The folder of the checkpoint of ``step``."""
        return self.checkpoints_path / f"step_{step:08d}"

    def make_way(self, step: int) -> Path:
        """The folder of the checkpoint of ``step``, without a remainder that is no checkpoint."""
        path = self.checkpoint_path(step)
        with refusing(f"{path}: cannot be replaced"):
            if path.is_dir() and not (path / MANIFEST).is_file():
                delete_checkpoint(path)
        return path

    def abandon_after(self, step: int) -> None:
        """Rename the checkpoints of later steps."""
        with refusing(f"{self.path}: the later checkpoints cannot be renamed"):
            for checkpoint in self.checkpoints():
                if step_of(checkpoint) > step:
                    self._abandon(checkpoint)

    def checkpoints(self) -> list[Path]:
        """The checkpoint folders, oldest first, unverified."""
        if not self.checkpoints_path.is_dir():
            return []
        steps = [item for item in self.checkpoints_path.iterdir() if _STEP.fullmatch(item.name)]
        return sorted(steps, key=step_of)

    def scheduled(self) -> list[Path]:
        """Checkpoints that were saved on schedule, not by an interruption; oldest first, unverified."""
        return [path for path in self.checkpoints() if not _interrupted(path)]

    def latest(self) -> Latest | None:
        """The newest intact checkpoint; None if none was saved; ``CheckpointError`` if all are damaged."""
        warnings: list[str] = []
        for path in reversed(self.checkpoints()):
            try:
                verify(path)
            except CheckpointError as error:
                warnings.append(str(error))
            else:
                return Latest(path, step_of(path), warnings)
        if warnings:
            raise CheckpointError(f"{self.path}: none of its {len(warnings)} checkpoints is intact; {warnings[0]}")
        return None

    def best(self) -> Best | None:
        """Last record of ``set_best``, or None."""
        path = self.path / BEST
        with refusing(f"{path}: cannot be read"):
            if not path.exists():
                return None
            data = read_regular(path, MEGABYTE, self.path)
            match parse_digested(data) or parse_object(data):  # earlier versions wrote it without a digest
                case {"checkpoint": str(name), "metric": str(metric), "value": int() | float() as value, **more} if (
                    not more
                ):
                    checkpoint = self.checkpoints_path / name
                    if _STEP.fullmatch(name) and checkpoint.is_dir():
                        return Best(checkpoint, metric, value)
                    raise CheckpointError(
                        f"{path}: names {name}, which does not exist; name a checkpoint instead of the run"
                    )
        raise CheckpointError(f"{path}: is damaged; delete it to use the newest checkpoint")

    def set_best(self, checkpoint: Path, metric: str, value: float) -> None:
        """Record that ``checkpoint`` of this run is the best so far; ``keep`` will not delete it."""
        if checkpoint not in self.checkpoints():
            raise CheckpointError(f"{checkpoint}: is not a checkpoint of {self.path}; save it there first")
        if not math.isfinite(value):
            raise CheckpointError(
                f"{metric}={value}: is not finite, so it cannot be the best; choose a checkpoint with a finite value"
            )
        content = {"checkpoint": checkpoint.name, "metric": metric, "value": value}
        write_atomically(self.path / BEST, digested(content))

    def keep(self, last: int) -> None:
        """Delete all checkpoints except the best, the newest, and the ``last`` newest scheduled ones."""
        if last < 1:
            raise CheckpointError(f"last={last}: at least the newest checkpoint has to be kept; choose 1 or more")
        best = self.best()
        with refusing(f"{self.path}: an old checkpoint cannot be deleted"):
            needed = self.scheduled()[-last:]
            for path in self.checkpoints()[:-1]:
                if path not in needed and (best is None or path != best.checkpoint):
                    delete_checkpoint(path)

    def append_metrics(self, values: dict[str, Any]) -> None:
        """Add one line to ``metrics.jsonl``, whole, at once. ``step`` among the values is what truncating goes by."""
        line = _metrics_line(values)
        with refusing(f"{self.metrics_path}: cannot be written"), self.metrics_path.open("ab") as stream:
            stream.write(line)

    def metrics(self) -> list[dict[str, Any]]:
        """Read ``metrics.jsonl``. A half-written last line is skipped; a damaged line is skipped with a warning."""
        with refusing(f"{self.metrics_path}: cannot be read"):
            data = read_regular(self.metrics_path, LARGEST_METRICS, self.path) if self.metrics_path.exists() else b""
        *ended, last = data.split(b"\n")
        names = list(map(_parse_metrics, ended))
        if _parse_metrics(last) or _parse_metrics(last[:-1]):  # the second: its newline is damaged
            names.append(_parse_metrics(last))
        if None in names:
            warnings.warn(
                f"{self.metrics_path}, line {names.index(None) + 1}: is damaged and skipped; copy the file again",
                stacklevel=2,
            )
        return [values for values in names if values is not None]

    def truncate_metrics(self, step: int) -> None:
        """Drop the lines after ``step``, which the resumed run will write again, and a half-written one."""
        remaining: list[dict[str, Any]] = []
        for values in self.metrics():
            if values.get("step", step) > step:
                break
            remaining.append(values)
        if self.metrics_path.exists():
            write_atomically(self.metrics_path, b"".join(map(_metrics_line, remaining)))

    def _begun(self) -> CheckpointError:
        return CheckpointError(f"{self.path}: holds a run already; go on with --resume, or name another with --run")

    def _abandon(self, path: Path) -> None:
        record = self.path / BEST
        if record.exists() and (parse_object(record.read_bytes()) or {}).get("checkpoint") == path.name:
            record.unlink()
        os.rename(path, path.with_name(f"abandoned_{path.name}_{secrets.token_hex(4)}"))


def resolve(path: str | Path) -> Path:
    """The checkpoint that ``path`` means: a run folder its best, else its newest; a checkpoint folder itself."""
    path = Path(path)
    with refusing(f"{path}: cannot be read"):
        if (path / CHECKPOINTS).is_dir():
            run = RunFolder(path)
            if best := run.best():
                return best.checkpoint
            if not (saved := run.checkpoints()):
                raise CheckpointError(f"{path}: this run has saved no checkpoint yet; train it further with --resume")
            return saved[-1]
        if any((path / name).is_file() for name in (MANIFEST, WEIGHTS, CONFIG)):
            return path
        problem = "is neither a run nor a checkpoint" if path.exists() else "there is no such run or checkpoint"
        raise CheckpointError(f"{path}: {problem}; {nearby(path)}")


def _metrics_line(values: dict[str, Any]) -> bytes:
    """Serialize ``values`` with a CRC-32, which detects a changed bit."""
    return (json.dumps({**values, "crc32": _crc32(values)}) + "\n").encode()


def _crc32(values: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(values).encode()):08x}"


def _parse_metrics(line: bytes) -> dict[str, Any] | None:
    """Parse a line; None if it is damaged. Earlier versions wrote lines without a CRC-32."""
    values = parse_object(line)
    if not values:
        return values
    content = dict(values)
    name, last = content.popitem()
    if _metrics_line(content).rstrip(b"\n") == line:
        return content
    damaged = name == "crc32" or last == _crc32(content)  # the second: its key is damaged
    return None if damaged else values


def step_of(path: Path) -> int:
    """The training step in the name of a checkpoint folder."""
    return int(path.name.removeprefix("step_"))


def _interrupted(checkpoint: Path) -> bool:
    """True if Ctrl-C or ``train.max_seconds`` stopped training here. A damaged training state counts as scheduled."""
    return bool(training_values(checkpoint).get(INTERRUPTED))


def training_values(checkpoint: Path) -> dict[str, Any]:
    """Read the values of the training state, unverified; empty if they are missing, damaged or too large."""
    with suppress(OSError):
        return parse_object(read_regular(checkpoint / STATE_VALUES, LARGEST[STATE_VALUES], checkpoint)) or {}
    return {}


def nearby(path: Path, suffix: str | None = None) -> str:
    """A hint giving the path of the run or checkpoint, or file with ``suffix``, beside ``path`` of the nearest name."""
    parent = path.parent
    beside = [item for item in parent.iterdir() if item != path] if parent.is_dir() else []
    known = [
        item.name
        for item in beside
        if item.suffix == suffix or (item / CHECKPOINTS).is_dir() or (item / MANIFEST).is_file()
    ]
    if known:
        return nearest(path.name, known, str(path).removesuffix(path.name))
    return "name the folder of a run or of a checkpoint" + (f", or a {suffix} file" if suffix else "")


def _run_of(checkpoint: Path) -> str:
    """A hint naming the run that ``checkpoint`` is of."""
    runs = [folder for folder in checkpoint.absolute().parents[:2] if (folder / CHECKPOINTS).is_dir()]
    return f"name {runs[0]}" if runs else "name the folder of a run, with its checkpoints in it"


class _OpenFolder:
    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def close(self) -> None:
        """Close the descriptor; a second call does nothing, as its number may belong to another file by then."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _take(folder: int, file: int, path: Path) -> None:
    with refusing(f"{path}: cannot be locked"):
        try:
            _lock_folder(folder)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 20, 0).decode(errors="replace").strip()
            raise CheckpointError(
                f"{path}: is being trained by {f'process {holder}' if holder else 'another process'}; "
                "wait for it, or name another run with --run"
            ) from None
        if not os.path.samestat(os.fstat(folder), path.stat()):
            raise CheckpointError(f"{path}: was replaced while it was being locked; try again")
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())


def _lock_folder(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass  # a network file system that locks only files open for writing
