"""One training in several processes: data parallelism by PyTorch's DDP (Li et al. 2020, arXiv:2006.15704).

Every process makes the same batch, a function of (seed, step), and computes each ``size``-th row of it. Gradients are
summed, not averaged, since the loss of each row is divided by the tokens of the whole batch. So any number of processes
takes the same step, but for the order of sums.
"""

import hashlib
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from glassformer.errors import ConfigError, DataError, GlassformerError
from glassformer.layers.block import Block
from glassformer.tasks import resolve_name
from glassformer.train.host_process import seed_generators
from glassformer.train.loss import Loss
from glassformer.train.reduction import BucketSums, sum_

T = TypeVar("T")

BUCKET = 6 << 20
"""Gradients in one exchange: 25 MB in float32, as DDP."""
BACKENDS = ("gloo/transport", "caused pair closure", "NCCL")
"""Words of the backends in errors without a class of their own."""


class FailedElsewhereError(GlassformerError):
    """An error ended another process of this training; rank 0 raises it as it is."""


@dataclass(frozen=True)
class World:
    """The processes that compute one training: this one's ``rank``, and their number.

    Groups of ``tensor`` neighbors divide the layers, and so compute the same rows.
    """

    rank: int = 0
    size: int = 1
    tensor: int = 1
    replicas: Any = None
    """Process group of those that have the same part of the layers; None if that is all."""

    @classmethod
    def current(cls) -> "World":
        """The process group of PyTorch if the host process has initialized one; else this process alone."""
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size())
        return cls()

    @property
    def leads(self) -> bool:
        """True for the process that prints, validates and saves."""
        return self.rank == 0

    @property
    def replica(self) -> int:
        """Index of the group of processes that this one computes the same rows with."""
        return self.rank // self.tensor

    @property
    def n_replicas(self) -> int:
        """Number of these groups."""
        return self.size // self.tensor

    def sums(self, values: Sequence[float], flag: bool, digest: bytes, name: str) -> tuple[list[float], bool]:
        """The sum of each value over all replicas, and whether ``flag`` is true in any process.

        The exchange also compares ``digest`` of ``name``.

        Raises:
            DataError: The digests of two processes differ. 48 bits of them are compared, which a float64 holds exactly.
        """
        if self.size == 1:
            return list(values), flag
        own = torch.tensor([*values, flag, int.from_bytes(digest[:6], "big")], dtype=torch.float64)
        received = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(received, own)
        by_rank = torch.stack(received)
        self.refuse_differing(by_rank[:, -1].tolist(), name, "give every process the same data files")
        return by_rank[:: self.tensor, :-2].sum(0).tolist(), bool(by_rank[:, -2].any())

    def refuse_differing(self, digests: Sequence[object], name: str, way_out: str) -> None:
        """Raise ``DataError`` if the digests of ``name``, one for each rank, are not equal; it names the ranks."""
        others = [str(rank) for rank, digest in enumerate(digests) if digest != digests[0]]
        if others:
            more = f"processes {', '.join(others)} have" if len(others) > 1 else f"process {others[0]} has"
            raise (DataError if self.leads else FailedElsewhereError)(
                f"{name}: {more} other values than process 0; {way_out}"
            )

    def sum_gradients(self, gradients: Sequence[Tensor]) -> None:
        """Sum gradients over all replicas, in place, many of them in one exchange."""
        if self.n_replicas == 1:
            return
        for bucket in _buckets(gradients):
            flat = torch.cat([gradient.flatten() for gradient in bucket])
            sum_(flat, self.replicas)
            for gradient, total in zip(bucket, flat.split([one.numel() for one in bucket]), strict=True):
                gradient.copy_(total.view_as(gradient))

    def sum_by_rank(self, value: Tensor) -> Tensor:
        """The sum of ``value`` over all processes, in the order of their ranks, so that it is equal in all."""
        received = [torch.empty_like(value) for _ in range(self.size)]
        dist.all_gather(received, value)
        return torch.stack(received).sum(0)

    def parts(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The rows of each tensor as FSDP2 divides them among the replicas, in the same memory."""
        return [part for tensor in tensors for part in local(tensor.detach()).chunk(self.n_replicas)]

    def own_part(self, tensor: Tensor) -> Tensor:
        """The part of ``tensor`` that FSDP2 gives to this replica; empty if there are more replicas than rows."""
        parts = tensor.chunk(self.n_replicas)
        return parts[self.replica] if self.replica < len(parts) else tensor[:0]

    def gather(self, value: T) -> list[T]:
        """The value of each process, by rank. It is pickled, so it has to come from this training."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def from_leader(self, make: Callable[[], T]) -> T:
        """The result of ``make`` on rank 0, for all processes; its error too."""
        if self.size == 1:
            return make()
        box: list[Any] = [None, None]
        fault: Exception | None = None
        if self.leads:
            try:
                box[0] = make()
            except (GlassformerError, OSError) as error:
                fault, box[1] = error, str(error)
        dist.broadcast_object_list(box)
        if fault is not None:
            raise fault
        if box[1] is not None:
            raise FailedElsewhereError(box[1])
        return cast(T, box[0])

    def of_leader(self, value: T) -> T:
        """The value that rank 0 has."""
        return self.from_leader(lambda: value)

    def together(self, make: Callable[[], T]) -> T:
        """The result of ``make`` on each process; an error on any of them becomes the error of all."""
        if self.size == 1:
            return make()
        result: T | None = None
        fault: Exception | None = None
        try:
            result = make()
        except (GlassformerError, OSError) as error:
            fault = error
        texts = self.gather(None if fault is None else str(fault))
        if self.leads and fault is not None:
            raise fault
        for rank, text in enumerate(texts):
            if text is not None:
                raise (GlassformerError if self.leads else FailedElsewhereError)(f"process {rank}: {text}")
        return cast(T, result)

    def check_equal(self, facts: Mapping[str, Any], way_out: str) -> None:
        """Raise ``ConfigError`` if a fact differs between processes, with both values and both processes."""
        first, *others = self.gather(dict(facts))
        for rank, other in enumerate(others, start=1):
            for name in first.keys() | other.keys():
                if first.get(name) != other.get(name):
                    values = f"{first.get(name)!r} in process 0, but {other.get(name)!r} in process {rank}"
                    raise (ConfigError if self.leads else FailedElsewhereError)(f"{name} is {values}; {way_out}")

    def seed_step(self, seed: int, step: int, device: torch.device) -> None:
        """Seed PyTorch's generators for one step of several processes: dropout differs between their rows.

        The seed is a function of (seed, step, replica), so that a resumed run needs no state of other processes. One
        process alone draws from one sequence, as its checkpoints store.
        """
        if self.size > 1:
            digest = hashlib.sha256(f"{seed} {step} {self.replica}".encode()).digest()
            seed_generators(int.from_bytes(digest[:7], "big"), device)

    def share_of(self, batch: Any) -> tuple[Any, bool]:
        """The rows of ``batch`` that this process computes, and False if there are none.

        Every process has to take part in the gradients. One without a row of its own takes the first one, whose loss
        must not count.
        """
        if self.n_replicas == 1:
            return batch, True
        rows = range(self.replica, batch.n_rows, self.n_replicas)
        return batch.select(rows or range(1)), bool(rows)


ALONE = World()
"""The world of a training by one process."""


class StepLoss(nn.Module):
    """The loss of a task as a module, since DDP prepares its gradients when a module is called.

    ``separate``: blocks that each sum their own gradient of the encoder's output first, as FSDP2 does; the order of
    addition decides the last bits.
    """

    def __init__(self, model: nn.Module, loss: Callable[[Any, Any], Loss], separate: Sequence[Block] = ()):
        super().__init__()
        self.model, self.loss, self.separate = model, loss, tuple(separate)

    def forward(self, batch: Any) -> Loss:
        with ExitStack() as hooks:  # for this call only: a model with hooks is not computed by the kernels
            for block in self.separate:
                hooks.enter_context(block.register_forward_pre_hook(_separate_memory))
            return self.loss(self.model, batch)


def _separate_memory(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs of a block, with a view of the encoder's output in its place."""
    x, mask, memory, *others = inputs
    return x, mask, None if memory is None else memory.view_as(memory), *others


def replicate(
    model: nn.Module, loss: Callable[[Any, Any], Loss], has_unused: bool, as_sharded: bool = False
) -> DistributedDataParallel:
    """``loss`` of a replica of ``model``, whose gradients are summed over all processes while it goes backward.

    ``has_unused``: parameters exist that the loss does not reach. ``as_sharded``: add gradients in the order
    of FSDP2, if PyTorch computes all of ``model``.
    """
    blocks = [module for module in model.modules() if isinstance(module, Block)] if as_sharded else []
    with warnings.catch_warnings():  # PyTorch 2.13 has another name for the option, earlier ones know only this one
        warnings.simplefilter("ignore", FutureWarning)
        replica = DistributedDataParallel(
            StepLoss(model, loss, blocks), find_unused_parameters=has_unused, broadcast_buffers=False
        )
    replica.register_comm_hook(BucketSums(), BucketSums.add)
    return replica


def local(tensor: Any) -> Tensor:
    """The shard of ``tensor`` in this process, in the same memory; all of it if it is not divided."""
    return cast(Tensor, tensor.to_local() if is_divided(tensor) else tensor)


def whole_tensor(tensor: Any) -> Tensor:
    """All shards of ``tensor`` together. Every process has to call it."""
    if not is_divided(tensor):
        return cast(Tensor, tensor.detach())
    return cast(Tensor, resolve_name("glassformer.train.sharded:gather")(tensor.detach()))


def n_shards(tensor: Any) -> int:
    """Number of different shards of ``tensor``; 1 if it is not divided."""
    if not is_divided(tensor):
        return 1
    sizes = zip(tensor.device_mesh.shape, tensor.placements, strict=True)
    return math.prod(size for size, placement in sizes if not placement.is_replicate())


def is_divided(tensor: Tensor) -> bool:
    """True for PyTorch's ``DTensor``, whose module this one does not import, since that takes seconds."""
    return hasattr(tensor, "full_tensor")


def is_lost_connection(error: Exception) -> bool:
    """True for an error of communication between processes."""
    return isinstance(error, dist.DistError) or any(word in str(error) for word in BACKENDS)


def _buckets(gradients: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Gradients of one type, some ``BUCKET`` numbers each."""
    bucket: list[Tensor] = []
    for gradient in gradients:
        if bucket and (bucket[0].dtype != gradient.dtype or sum(one.numel() for one in bucket) > BUCKET):
            yield bucket
            bucket = []
        bucket.append(gradient)
    if bucket:
        yield bucket
