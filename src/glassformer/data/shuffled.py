"""Batches of examples of one size, in an order drawn from (seed, epoch)."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from glassformer.data.loader import ResumableLoader
from glassformer.errors import DataError

B = TypeVar("B")


@dataclass(frozen=True)
class Shuffle:
    """The examples of an epoch in its order; batch ``i`` has those from ``bounds[i]`` to ``bounds[i + 1]``."""

    order: NDArray[np.int64]
    bounds: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def batch(self, position: int) -> NDArray[np.int64]:
        return self.order[self.bounds[position] : self.bounds[position + 1]]


class ShuffledBatches(ResumableLoader[Shuffle, B]):
    """Each epoch sees each of ``n_examples`` once, in batches of at most ``batch_size``, their sizes equal to within 1.

    No example is dropped, and none is alone in a last small batch, where its gradient would weigh more.
    """

    def __init__(self, n_examples: int, batch_size: int, seed: int) -> None:
        if n_examples < 1:
            raise DataError("there is no example to make batches of; give data.train at least one")
        if batch_size < 1:
            raise DataError(f"data.batch_size={batch_size}: a batch holds at least one example; give 1 or more")
        n_batches = -(-n_examples // batch_size)
        self.batch_size, self._bounds = batch_size, np.arange(n_batches + 1) * n_examples // n_batches
        super().__init__(seed)

    @property
    def padding_share(self) -> float:
        """Examples of one size need none."""
        return 0.0

    @abstractmethod
    def _examples(self, examples: NDArray[np.int64], generator: np.random.Generator) -> B:
        """The batch of these examples; what it draws, it draws from ``generator``."""

    def _plan_epoch(self, epoch: int) -> Shuffle:
        return Shuffle(np.random.default_rng((self.seed, epoch)).permutation(self._bounds[-1]), self._bounds)

    def _make(self, plan: Shuffle, epoch: int, position: int) -> B:
        # 1 + position: to numpy, the seeds (a, b) and (a, b, 0) are one, and (a, b) has drawn the order.
        return self._examples(plan.batch(position), np.random.default_rng((self.seed, epoch, 1 + position)))

    def _largest(self, plan: Shuffle) -> int:
        return int(np.diff(plan.bounds).argmax())
