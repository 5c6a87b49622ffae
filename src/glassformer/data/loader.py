"""What training takes from its data: batches without end, decided by a seed, to be taken up again at any of them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sized
from dataclasses import fields, replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from glassformer.errors import DataError

B = TypeVar("B")
P = TypeVar("P", bound=Sized)


class ResumableLoader(ABC, Generic[P, B]):
    """Batches of every epoch; each is a function of (seed, epoch, position) alone.

    ``epoch`` and ``position`` are those of the next batch: after the last of an epoch, the next epoch and 0.
    """

    fingerprint: str  # SHA-256 of contents, vocabulary and the settings that decide the batches
    content_digest: str = ""  # SHA-256 of the token ids if they come from a cache

    def __init__(self, seed: int) -> None:
        if seed < 0:
            raise DataError(f"seed={seed} is negative; give 0 or more")
        self.seed, self.epoch, self.position = seed, 0, 0
        self._plan = self._plan_epoch(0)

    def __len__(self) -> int:
        """Batches in this epoch."""
        return len(self._plan)

    def next(self) -> B:
        batch = self._make(self._plan, self.epoch, self.position)
        last = self.position + 1 == len(self._plan)
        self._enter(*((self.epoch + 1, 0) if last else (self.epoch, self.position + 1)))
        return batch

    def __iter__(self) -> Iterator[B]:
        """Batches without end."""
        while True:
            yield self.next()

    def whole_epoch(self, epoch: int = 0) -> Iterator[B]:
        """Every batch of one epoch once, wherever training is: for validation."""
        plan = self._plan_epoch(epoch)
        for position in range(len(plan)):
            yield self._make(plan, epoch, position)

    def largest(self) -> B:
        """The batch of this epoch that needs most memory: what fits memory with it fits with the rest."""
        return self._make(self._plan, self.epoch, self._largest(self._plan))

    def state(self) -> dict[str, int]:
        """Where the stream is, for ``restore`` on the same data, settings and seed."""
        return {"epoch": self.epoch, "position": self.position}

    def restore(self, state: dict[str, Any]) -> None:
        """The next batch becomes the one that followed when ``state`` was taken."""
        self._enter(state["epoch"], state["position"])

    @property
    @abstractmethod
    def padding_share(self) -> float:
        """Share of padding in the tokens of this epoch's batches."""

    @abstractmethod
    def _plan_epoch(self, epoch: int) -> P: ...

    @abstractmethod
    def _make(self, plan: P, epoch: int, position: int) -> B: ...

    @abstractmethod
    def _largest(self, plan: P) -> int:
        """Its position."""

    def _enter(self, epoch: int, position: int) -> None:
        plan = self._plan if epoch == self.epoch else self._plan_epoch(max(0, epoch))
        if not (epoch >= 0 and 0 <= position < len(plan)):
            raise DataError(
                f"batch {position} of epoch {epoch} is asked for, which has {len(plan)}; "
                "the data, the size of a batch or the seed are not those of the stored state"
            )
        self._plan, self.epoch, self.position = plan, epoch, position


def moved(batch: B, device: torch.device | str) -> B:
    """The same batch with its tensors on ``device``."""
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}  # type: ignore[arg-type]
    tensors = {name: value.to(device, non_blocking=True) for name, value in values.items() if isinstance(value, Tensor)}
    return replace(batch, **tensors)  # type: ignore[type-var]
