"""Protocol of training tasks: all that differs between translation, language modeling and classification.

The loop, the optimizer, saving and resuming know nothing but this.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import torch
from torch import nn

from glassformer.config import Config
from glassformer.data.shards.shard_set import CorruptShard
from glassformer.errors import ConfigError
from glassformer.train.config import RunConfig
from glassformer.train.loss import Loss


class TaskBatch(Protocol):
    """Batch of one forward and backward pass."""

    @property
    def source_tokens(self) -> int:
        """Number of source tokens, without padding."""
        ...

    @property
    def n_targets(self) -> int:
        """Number of predictions, which the loss is a mean over."""
        ...

    def to(self, device: torch.device | str) -> Self: ...

    def digest(self) -> bytes:
        """SHA-256 of all values."""
        ...

    def describe(self) -> str:
        """Shape of the batch, in words that can follow "a batch of"."""
        ...


class BatchSource(Protocol):
    """Batches without end, a function of (seed, epoch), so that a position is two numbers."""

    @property
    def epoch(self) -> int: ...

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the data and of what decides the batches. A run resumed with another one sees other data."""
        ...

    @property
    def content_digest(self) -> str:
        """SHA-256 of the token ids if they come from a cache; empty if ``fingerprint`` covers them."""
        ...

    @property
    def padding_share(self) -> float: ...

    def __len__(self) -> int:
        """Batches in this epoch."""
        ...

    def next(self) -> Any: ...

    def largest(self) -> Any:
        """The batch that needs most memory."""
        ...

    def new_corrupt(self) -> list[CorruptShard]:
        """Shards that were found to be corrupt, and skipped, since the last call."""
        ...

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: dict[str, Any]) -> None: ...


class Ahead:
    """Batch source that prefetches one batch while a GPU computes; ``epoch`` and ``state`` do not count it."""

    def __init__(self, source: BatchSource):
        self._source = source
        self._prefetched: list[Future[Any]] = []
        self._before: tuple[int, dict[str, Any]] = 0, {}

    def prepare(self) -> None:
        """Make the next batch if there is none. ``next`` raises the exception of a failed attempt."""
        if self._prefetched:
            return
        self._before = self._source.epoch, self._source.state()
        batch: Future[Any] = Future()
        try:
            batch.set_result(self._source.next())
        except Exception as fault:
            batch.set_exception(fault)
        self._prefetched.append(batch)

    def next(self) -> Any:
        self.prepare()
        return self._prefetched.pop().result()

    def state(self) -> dict[str, Any]:
        return self._before[1] if self._prefetched else self._source.state()

    def restore(self, state: dict[str, Any]) -> None:
        self._prefetched.clear()
        self._source.restore(state)

    def new_corrupt(self) -> list[CorruptShard]:
        return self._source.new_corrupt()

    @property
    def epoch(self) -> int:
        return self._before[0] if self._prefetched else self._source.epoch

    @property
    def fingerprint(self) -> str:
        return self._source.fingerprint

    @property
    def content_digest(self) -> str:
        return self._source.content_digest

    @property
    def padding_share(self) -> float:
        return self._source.padding_share

    def __len__(self) -> int:
        return len(self._source)

    def largest(self) -> Any:
        return self._source.largest()


class Report(Protocol):
    def lines(self) -> list[str]: ...


@dataclass(frozen=True)
class Message:
    """A one-line report."""

    text: str

    def lines(self) -> list[str]:
        return [self.text]


@dataclass(frozen=True)
class ValidationReport:
    """The report of the validation data, with a prefix on each line."""

    account: Report

    def lines(self) -> list[str]:
        return [f"validation: {line}" for line in self.account.lines()]


@dataclass(frozen=True)
class CheckpointMetadata:
    """Contents of a checkpoint besides the weights: ``values`` of ``config.json``, and the tokenizer, if any."""

    values: dict[str, Any]
    tokenizer: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceCheckpoint:
    """The checkpoint that a run resumes or starts from."""

    path: str
    metadata: CheckpointMetadata


class Task(Protocol):
    """Data, model, loss and scores of one kind of run."""

    @property
    def config(self) -> RunConfig: ...

    @property
    def batches(self) -> BatchSource: ...

    @property
    def accounts(self) -> Sequence[Report]:
        """Reports on all lines that were read."""
        ...

    @property
    def unit(self) -> str:
        """Unit of ``TaskBatch.n_targets``."""
        ...

    @property
    def limit(self) -> str:
        """The setting that makes batches smaller, as ``data.batch_tokens=4096``."""
        ...

    @property
    def validates(self) -> bool:
        """True if there is validation data."""
        ...

    def new_model(self) -> Any:
        """Freshly initialized, from torch's global generator."""
        ...

    def loss(self, model: Any, batch: Any) -> Loss:
        """Summed over ``batch.n_targets``."""
        ...

    def validate(self, model: Any) -> dict[str, float]:
        """Scores by name. Leaves torch's global generator alone."""
        ...

    def metadata(self) -> CheckpointMetadata: ...

    def texts(self, batch: Any) -> list[Any]:
        """The examples of ``batch`` for a person, as JSON can say them."""
        ...


def sized_by_data(config: Config, sizes: dict[str, Any], data: str) -> dict[str, Any]:
    """A model's settings with the ``sizes`` that its data have; one that says otherwise is refused.

    A default says nothing: the ``config.toml`` of a run holds every setting.
    """
    for name, size in sizes.items():
        value, default = getattr(config, name), type(config).model_fields[name].default
        if value not in (size, default):
            raise ConfigError(f"model.{name}={value}, but the {data} have {size}; leave it out")
    return {**config.model_dump(), **sizes}


LOWER_IS_BETTER = frozenset({"nll", "perplexity", "bits_per_character", "bits_per_byte", "mse", "mae"})


def objective(scores: dict[str, float], metric: str) -> float:
    """The score that chooses the best checkpoint, so that greater is better."""
    name = "nll" if metric == "loss" else metric
    return -scores[name] if name in LOWER_IS_BETTER else scores[name]


def without_dropout(model: nn.Module, task: Task) -> dict[str, float]:
    """``task.validate`` with the model as it is used, and then as it was."""
    was_training = model.training
    model.eval()
    scores = task.validate(model)
    model.train(was_training)
    return scores
