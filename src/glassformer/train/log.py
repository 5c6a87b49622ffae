"""Reports of a run: events for its caller, and the same numbers in ``metrics.jsonl`` and TensorBoard."""

import math
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from typing import Any

from glassformer.storage.run_folder import RunFolder

SummaryWriter: Any = None
if find_spec("tensorboard"):
    from torch.utils.tensorboard.writer import SummaryWriter


@dataclass(frozen=True)
class Started:
    """Event before the first step: model and data."""

    step: int
    max_steps: int
    parameters: int
    accounts: list[str]
    padding_share: float
    batches_per_epoch: int
    warnings: list[str]
    """Newer checkpoints that were passed over because they are damaged."""
    unit: str
    """Unit that the loss is a mean over: target tokens, images, …"""
    overrides: list[str] = field(default_factory=list)
    """Settings that ``train.override_on_resume`` changes from this step on."""
    engine: str = ""
    """The code that computes each part of the model (``native.describe``)."""


@dataclass(frozen=True)
class Stepped:
    """End of one step, for a progress bar; only with ``each_step``, and never in ``metrics.jsonl``."""

    step: int


@dataclass(frozen=True)
class Progress:
    """Means since the last one. ``loss`` is what is minimized (label-smoothed), ``nll`` is not smoothed; in nats."""

    step: int
    loss: float
    nll: float | None
    learning_rate: float
    gradient_norm: float
    source_tokens_per_second: float
    target_tokens_per_second: float
    epoch: int
    seconds: float
    guidance: float | None = None
    """Weighted loss of guided alignment; minimized, but not part of ``loss``."""


@dataclass(frozen=True)
class Validated:
    step: int
    scores: dict[str, float]
    seconds: float
    """Seconds of training until now."""
    validation_seconds: float
    best: bool
    warning: str | None = None
    """Warning of a score that cannot choose the best checkpoint, with the way out."""


@dataclass(frozen=True)
class Skipped:
    """A step whose loss or gradient was not finite, and was not taken."""

    step: int
    loss: float
    gradient_norm: float
    skipped: int


@dataclass(frozen=True)
class Corrupt:
    """A shard that is damaged or missing, and is skipped (``data.on_corrupt``)."""

    step: int
    shard: str
    reason: str
    samples: int
    content: str
    """Content of the shard in words: samples, or tokens of a stream."""


@dataclass(frozen=True)
class Finished:
    step: int
    reason: str
    seconds: float


Event = Started | Stepped | Progress | Validated | Skipped | Corrupt | Finished


class Log:
    """Writes each event as one line of ``metrics.jsonl``, and its numbers to TensorBoard where that is installed."""

    def __init__(self, run: RunFolder):
        self.run = run
        self.board: Any = None

    def write(self, event: Event) -> None:
        kind = type(event).__name__.lower()
        values = asdict(event)
        values |= values.pop("scores", {})
        self.run.append_metrics({"event": kind, **{key: _strict(value) for key, value in values.items()}})
        if SummaryWriter and isinstance(event, Progress | Validated):
            self.board = self.board or SummaryWriter(str(self.run.path / "tensorboard"), purge_step=event.step)
            for name, value in values.items():
                if name != "step" and isinstance(value, int | float):
                    self.board.add_scalar(f"{kind}/{name}", value, event.step)
            self.board.flush()

    def close(self) -> None:
        if self.board is not None:
            self.board.close()


def _strict(value: Any) -> Any:
    """JSON knows no NaN and no infinity; as text they are still read."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
