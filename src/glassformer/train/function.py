"""Training from Python: a function that trains to the end, and an iterator over the events of a training."""

import copy
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from glassformer import predict
from glassformer.config import apply_override
from glassformer.errors import ConfigError
from glassformer.storage.run_folder import Best, RunFolder, resolve
from glassformer.train.config import RunConfig
from glassformer.train.distributed import World
from glassformer.train.log import Event, Finished, Started, Validated
from glassformer.train.loop import train as loop
from glassformer.train.tasks import parse_config, read_config

Configuration = str | Path | dict[str, Any] | RunConfig


@dataclass(frozen=True)
class TrainingResult:
    """Result of a training: its run folder, the reason it ended, and its scores."""

    run: Path
    step: int
    reason: str
    """Reason why training ended, such as ``train.max_steps=1000 is reached``."""
    seconds: float
    """Training time over all resumes, without validation."""
    scores: dict[str, float]
    """Scores of the last validation, by name; empty if this call did not validate."""
    best: Best | None
    """The best checkpoint with the value of ``validation.metric``, where greater is better; None without validation."""

    @property
    def checkpoint(self) -> Path:
        """The checkpoint that ``load`` and the command line use: the best one, else the newest."""
        return resolve(self.run)

    def load(self, device: str = "cpu") -> Any:
        """Load the trained model like ``glassformer.load``: a ``Translator``, a ``Generator``, …"""
        return predict.load(self.run, device=device)


def train(
    config: Configuration, run: str | Path | None = None, overrides: Sequence[str] = (), resume: bool = False
) -> TrainingResult:
    """Train to the end and return the result. Nothing is printed; ``metrics.jsonl`` in the run folder records it.

    ``config`` is the path of a TOML file, a dictionary of its sections, or a ``RunConfig``. ``run`` is the run folder:
    by default ``runs/NAME`` for a file ``NAME.toml``, otherwise required. ``overrides`` are settings over ``config``,
    such as ``["train.max_steps=100"]``. ``resume`` continues a run exactly, from its newest checkpoint.

    Damaged checkpoints, and scores that cannot choose the best one, are warnings. An unusable configuration, data file
    or run folder raises ``GlassformerError``. After Ctrl-C, ``resume=True`` continues from the last save.
    """
    scores: dict[str, float] = {}
    finished: Finished | None = None
    for event in events(config, run, overrides, resume):
        if isinstance(event, Started):
            for line in event.warnings:
                warnings.warn(f"{line}; resuming from an older checkpoint", stacklevel=3)
        elif isinstance(event, Validated):
            scores = event.scores
            if event.warning:
                warnings.warn(event.warning, stacklevel=3)
        elif isinstance(event, Finished):
            finished = event
    assert finished is not None
    path = _folder(config, run)
    best = World.current().from_leader(lambda: RunFolder.open(path).best())
    return TrainingResult(path, finished.step, finished.reason, finished.seconds, scores, best)


def events(
    config: Configuration,
    run: str | Path | None = None,
    overrides: Sequence[str] = (),
    resume: bool = False,
    each_step: bool = False,
) -> Iterator[Event]:
    """Train, and yield events: ``Started``, ``Progress``, ``Validated``, ``Skipped``, ``Finished``.

    ``each_step`` adds a ``Stepped`` after every step. Training advances only as the iterator does. A script that stops
    iterating stops the run; ``resume=True`` continues it from its last save.
    """
    settings, path = _settings(config, overrides), _folder(config, run)
    return loop(settings, run_folder(path, resume), resume, each_step=each_step)


def run_folder(path: Path, resume: bool) -> RunFolder:
    """The folder of a run that exists, for ``resume``, or of a new one; the first of several processes makes it."""
    return World.current().from_leader(lambda: RunFolder.open(path) if resume else RunFolder.create(path))


class CallableModule(ModuleType):
    """Class of the module ``glassformer.train``, which is both a package and the function ``train``.

    Importing any of its modules makes the package the attribute ``train`` of ``glassformer``, so the package must be
    callable.
    """

    def __call__(
        self, config: Configuration, run: str | Path | None = None, overrides: Sequence[str] = (), resume: bool = False
    ) -> TrainingResult:
        return train(config, run, overrides, resume)

    __call__.__doc__ = train.__doc__


def _settings(config: Configuration, overrides: Sequence[str]) -> RunConfig:
    if isinstance(overrides, str):
        raise ConfigError(f"overrides={overrides!r} is one string; give a list, as [{overrides!r}]")
    if isinstance(config, str | Path):
        return read_config(config, list(overrides))
    if isinstance(config, RunConfig):
        if not overrides:
            return config
        values = config.model_dump(exclude_unset=True)
    elif isinstance(config, dict):
        values = copy.deepcopy(config)
    else:
        raise ConfigError(f"config={config!r} is not a configuration; give a TOML file, a dict or a RunConfig")
    for override in overrides:
        apply_override(values, override)
    return type(config).parse(values) if isinstance(config, RunConfig) else parse_config(values)


def _folder(config: Configuration, run: str | Path | None) -> Path:
    if run is not None:
        return Path(run)
    if isinstance(config, str | Path):
        return Path("runs") / Path(config).stem
    raise ConfigError("run=None, and a configuration without a file has no name; give the run folder, as run='runs/x'")
