"""Endless batches for training, decided by a seed, which can be resumed at any batch."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.data.sampling import Batching, Sampler
from glassformer.errors import DataError

I = TypeVar("I")  # noqa: E741
B = TypeVar("B")


class Draw(NamedTuple):
    """Source of the random numbers of one batch."""

    seed: int
    epoch: int
    position: int
    examples: NDArray[np.int64] | None = None
    """Numbers of the examples, if those of the batch are counted from the first of a window of samples."""

    def generator(self) -> np.random.Generator:
        # 1 + position: to numpy the seeds (a, b) and (a, b, 0) are one, and (a, b) has drawn the order of the epoch.
        return np.random.default_rng((self.seed, self.epoch, 1 + self.position))

    def generator_of(self, example: int) -> np.random.Generator:
        """The same numbers for an example in whatever batch of the epoch it is."""
        number = example if self.examples is None else int(self.examples[example])
        return np.random.default_rng((self.seed, self.epoch, number))


class ResumableLoader(Generic[I, B]):
    """Batches of every epoch; each is a function of (seed, epoch, position) alone.

    ``sampler`` draws the batches of an epoch as indices, and ``collate`` makes the tensors of one. ``epoch`` and
    ``position`` are those of the next batch: after the last of an epoch, the next epoch and 0. ``fingerprint`` is the
    SHA-256 of contents, vocabulary and the settings that decide the batches; ``content_digest`` that of the token ids
    if they come from a cache.
    """

    def __init__(
        self,
        sampler: Sampler[I],
        collate: Callable[[I, Draw], B],
        seed: int,
        fingerprint: str,
        content_digest: str = "",
    ) -> None:
        if seed < 0:
            raise DataError(f"seed={seed} is negative; give 0 or more")
        self.sampler, self.collate, self.seed = sampler, collate, seed
        self.fingerprint, self.content_digest = fingerprint, content_digest
        self.epoch, self.position = 0, 0
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
        """Every batch of one epoch once, for validation; the position of training stays."""
        plan = self._plan_epoch(epoch)
        for position in range(len(plan)):
            yield self._make(plan, epoch, position)

    def largest(self) -> B:
        """The batch of this epoch that needs most memory: what fits memory with it fits with the rest."""
        return self._make(self._plan, self.epoch, self._plan.largest)

    def new_corrupt(self) -> list[Any]:
        """Corrupt shards: none, since all examples come from verified files."""
        return []

    @property
    def padding_share(self) -> float:
        """Share of padding in the tokens of this epoch's batches."""
        return self._plan.padding_share

    def state(self) -> dict[str, int]:
        """Position of the loader, for ``restore`` on the same data, settings and seed."""
        return {"epoch": self.epoch, "position": self.position}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with the batch that followed when ``state`` was taken."""
        self._enter(state["epoch"], state["position"])

    def _plan_epoch(self, epoch: int) -> Batching[I]:
        return self.sampler(np.random.default_rng((self.seed, epoch)))

    def _make(self, plan: Batching[I], epoch: int, position: int) -> B:
        return self.collate(plan.batch(position), Draw(self.seed, epoch, position))

    def _enter(self, epoch: int, position: int) -> None:
        plan = self._plan if epoch == self.epoch else self._plan_epoch(max(0, epoch))
        if not (epoch >= 0 and 0 <= position < len(plan)):
            raise DataError(
                f"batch {position} of epoch {epoch} is asked for, which has {len(plan)}; "
                "the data, the size of a batch or the seed are not those of the stored state"
            )
        self._plan, self.epoch, self.position = plan, epoch, position


class Tensors:
    """Dataclass of tensors, and of such dataclasses, that moves to a device as one.

    In a batch, every tensor and array has a row for each example or packed row.
    """

    @property
    def n_rows(self) -> int:
        """Rows of the batch: the length of its first field."""
        return len(getattr(self, fields(self)[0].name))  # type: ignore[arg-type]

    def select(self, rows: Sequence[int]) -> Self:
        """The batch of some rows only."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        cut = {name: value[list(rows)] for name, value in values.items() if isinstance(value, Tensor | np.ndarray)}
        selected = replace(self, **cut)  # type: ignore[type-var]
        return replace(selected, **selected.token_counts())  # type: ignore[type-var]

    def digest(self) -> bytes:
        """SHA-256 of the names, types, shapes and bytes of all fields: equal if and only if the values are equal."""
        digest = hashlib.sha256()
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            array = value.cpu().numpy() if isinstance(value, Tensor) else value
            if isinstance(array, np.ndarray):
                digest.update(f"{field.name} {array.dtype} {array.shape} ".encode())
                digest.update(np.ascontiguousarray(array).data)
            else:
                digest.update(f"{field.name} ".encode())
                digest.update(value.digest() if isinstance(value, Tensors) else repr(value).encode())
        return digest.digest()

    def token_counts(self) -> dict[str, int]:
        """Fields that are numbers of tokens, counted again."""
        return {}

    def to(self, device: torch.device | str) -> Self:
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        moved = {
            name: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value.to(device)
            for name, value in values.items()
            if isinstance(value, Tensor | Tensors)
        }
        return replace(self, **moved)  # type: ignore[type-var]
