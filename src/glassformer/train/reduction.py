"""Sums of gradients over processes, equal to the bit in replicated and in sharded training.

On a CPU every number is added in an order that depends on the number of processes alone: each process receives its part
of all gradients (all-to-all) and adds them by rank. FSDP2 needs no more; DDP gathers the sums (all-gather). That sends
as many bytes as a reduce-scatter and an all-reduce, whose order in gloo depends on the place of a number in its buffer.
On GPUs NCCL adds, in an order of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
"""PyTorch 2.13 renamed ``all_gather_into_tensor`` to ``all_gather_single``."""


def sum_(values: Tensor, group: Any = None) -> None:
    """Sum flat ``values`` over all processes, in place."""
    if not _by_rank(values, group):
        dist.all_reduce(values, group=group)
        return
    exchange = Exchange(values, group)
    exchange.gather()
    exchange.finish()


class ReduceScatter:
    """The sums of this process's part, in place of FSDP2's reduce-scatter.

    FSDP2 calls ``allocate`` for its buffers (``torch.distributed.fsdp``, interface ``ReduceScatter``).
    """

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        received = torch.empty_like(input_tensor)
        dist.all_to_all_single(received, input_tensor, group=group)
        output_tensor.copy_(add_rows_(received.view(group.size(), output_tensor.numel())))


@dataclass
class BucketSums:
    """Sums of buckets of gradients over all processes, in float32 at least; ``add`` is DDP's communication hook.

    A bucket is gathered when the next one is ready, so that all processes begin their collectives in the same order.
    The last bucket completes all of them: nothing is left to compute meanwhile.
    """

    pending: list["Exchange"] = field(default_factory=list)
    gathering: list["Exchange"] = field(default_factory=list)

    def add(self, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """Begin the sum of ``bucket``; the result is complete before the backward pass ends."""
        if bucket.index() == 0:  # a backward pass that was interrupted left these
            self.pending.clear()
            self.gathering.clear()
        buffer = bucket.buffer()
        wide = buffer.float() if buffer.dtype == torch.bfloat16 else buffer
        if not _by_rank(wide, None):
            return _all_reduce(buffer, wide)
        self.pending.append(exchange := Exchange(wide, None, buffer))
        while len(self.pending) > (0 if bucket.is_last() else 1):
            self.gathering.append(self.pending.pop(0))
            self.gathering[-1].gather()
        while bucket.is_last() and self.gathering:
            self.gathering.pop(0).finish()
        return exchange.result


class Exchange:
    """The sum of flat ``values`` over all processes, under way."""

    def __init__(self, values: Tensor, group: Any, target: Tensor | None = None):
        self.values, self.group, self.target = values, group, values if target is None else target
        self.result: torch.futures.Future[Tensor] = torch.futures.Future()
        self.size = dist.get_world_size(group)
        missing = -len(values) % self.size
        self.padded = F.pad(values, (0, missing)) if missing else values
        self.received = torch.empty_like(self.padded)
        self.work: Any = dist.all_to_all_single(self.received, self.padded, group=group, async_op=True)

    def gather(self) -> None:
        """Add the parts received, and begin to gather the sums of all processes."""
        self.work.wait()
        self.own = add_rows_(self.received.view(self.size, len(self.padded) // self.size))
        self.work = GATHER(self.padded, self.own, group=self.group, async_op=True)

    def finish(self) -> None:
        """Wait for the sums, write them to the target and complete ``result``."""
        self.work.wait()
        if self.padded is not self.target:
            self.target.copy_(self.padded[: len(self.values)])
        self.result.set_result(self.target)


def add_rows_(rows: Tensor) -> Tensor:
    """The sum of all ``rows``, in the first one: the second half is added to the first, until one row is left.

    Additions are element by element, so that the place of a number has no influence on its bits.
    """
    n = len(rows)
    while n > 1:
        half = n // 2
        rows[:half] += rows[n - half : n]
        n -= half
    return rows[0]


def _by_rank(values: Tensor, group: Any) -> bool:
    """True where sums are made here. Two processes have one order only, which an all-reduce computes faster."""
    return values.is_cpu and dist.get_world_size(group) > 2


def _all_reduce(buffer: Tensor, wide: Tensor) -> torch.futures.Future[Tensor]:
    work = dist.all_reduce(wide, async_op=True)
    assert work is not None

    def finish(_: torch.futures.Future[Any]) -> Tensor:
        return buffer if wide is buffer else buffer.copy_(wide)

    return work.get_future().then(finish)
