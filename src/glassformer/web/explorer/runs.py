"""The explored runs and their checkpoints, as menus list them; folders are read anew for each request."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from glassformer.errors import GlassformerError
from glassformer.storage.manifest import MANIFEST, refusing
from glassformer.storage.run_folder import CHECKPOINTS, RunFolder, resolve, step_of


@dataclass(frozen=True)
class CheckpointChoice:
    """A checkpoint of a run: its folder name, and its label in the menu."""

    name: str
    label: str
    path: Path


@dataclass(frozen=True)
class ExploredRun:
    """A run or checkpoint folder, and its name in the menu and in the address."""

    name: str
    path: Path

    @property
    def label(self) -> str:
        """The name; a folder that has been deleted says so."""
        return self.name if self.path.is_dir() else f"{self.name} · deleted"

    def checkpoints(self) -> list[CheckpointChoice]:
        """Complete checkpoints, oldest first; the one that commands use is marked."""
        if (self.path / MANIFEST).is_file() or not (self.path / CHECKPOINTS).is_dir():
            resolved = resolve(self.path)
            return [CheckpointChoice(resolved.name, resolved.name, resolved)]
        with refusing(f"{self.path}: cannot be read"):  # it may be deleted while it is listed
            complete = [one for one in RunFolder(self.path).checkpoints() if (one / MANIFEST).is_file()]
        used = self._used(complete)
        return [
            CheckpointChoice(one.name, f"step {step_of(one):,}{' · used' if one == used else ''}", one)
            for one in complete
        ]

    def default(self) -> Path:
        """The checkpoint that commands use; while it is half-written, the newest complete one."""
        return self._used([one.path for one in self.checkpoints()])

    def choose(self, name: str, notes: list[str]) -> tuple[str, Path]:
        """Name and folder of the checkpoint ``name``, or of the nearest one with a note; empty is the default."""
        if not name:
            return "", self.default()
        choices = {one.name: one.path for one in self.checkpoints()}
        if name in choices:
            return name, choices[name]
        if not choices:
            return "", resolve(self.path)  # which says what is missing
        nearest = _nearest_checkpoint(name, list(choices))
        notes.append(f"There is no checkpoint {name[:40]!r}; this is {nearest}.")
        return nearest, choices[nearest]

    def _used(self, complete: Sequence[Path]) -> Path:
        used = resolve(self.path)
        return used if used in complete or not complete else complete[-1]


def explored_runs(paths: Sequence[Path]) -> dict[str, ExploredRun]:
    """Runs by name: the folder's, preceded by as many folders above it as tell two runs of one name apart."""
    folders = {path.resolve(): path for path in reversed(paths)}
    parts = {resolved: resolved.parts for resolved in map(Path.resolve, paths)}
    depths = dict.fromkeys(parts, 1)
    while True:
        names = {one: "/".join(every[-depths[one] :]) for one, every in parts.items()}
        shared = [one for one in names if list(names.values()).count(names[one]) > 1 and depths[one] < len(parts[one])]
        if not shared:
            return {name: ExploredRun(name, folders[one]) for one, name in names.items()}
        for one in shared:
            depths[one] += 1


def choose_run(runs: dict[str, ExploredRun], name: str, notes: list[str]) -> tuple[str, ExploredRun]:
    """Name and run of an address, or the run of the most similar name with a note; empty is the first run."""
    if not name or name in runs:
        return name, runs[name or next(iter(runs))]
    nearest = (get_close_matches(name[:200], runs, 1) or [next(iter(runs))])[0]
    notes.append(f"There is no run {name[:40]!r}; this is {nearest}.")
    return nearest, runs[nearest]


def version_of(path: Path) -> tuple[object, ...]:
    """A key that changes when the checkpoint at ``path`` is replaced by another of the same name."""
    try:
        status = (path / MANIFEST).stat()
    except OSError:
        return (path,)
    return path, status.st_ino, status.st_mtime_ns, status.st_size


def listed_checkpoints(run: ExploredRun) -> tuple[list[CheckpointChoice], str]:
    """The checkpoints of a menu and the name of the default; nothing of a run that cannot be read."""
    try:
        return run.checkpoints(), run.default().name
    except GlassformerError:
        return [], ""


def _nearest_checkpoint(name: str, known: list[str]) -> str:
    """The known checkpoint of the nearest step; the last one if there is no step to compare."""
    steps = {one: int(found[1]) for one in [name, *known] if (found := re.fullmatch("step_([0-9]{1,12})", one))}
    if name not in steps or not any(one in steps for one in known):
        return known[-1]
    return min((one for one in known if one in steps), key=lambda one: abs(steps[one] - steps[name]))
