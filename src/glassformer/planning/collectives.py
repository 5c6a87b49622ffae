"""Collectives of a training step, counted on one of many processes that do not exist.

PyTorch's fake process group has any number of ranks and sends nothing; fake tensors have shapes and no memory. So the
code that trains runs as one rank of thousands, and each collective is seen with its bytes.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.distributed_c10d import GroupName, _resolve_process_group
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from glassformer.models.registry import build_uninitialized
from glassformer.planning.parallel import Parallel
from glassformer.planning.record import FAULT_CHECKS
from glassformer.planning.step import Training
from glassformer.train.distributed import StepLoss, World, local, replicate
from glassformer.train.division import REPLICA, TENSOR, make_mesh
from glassformer.train.sharded import shard
from glassformer.train.tensor_parallel import divide_blocks

KINDS = {
    "allreduce_": "all-reduce",
    "all_reduce": "all-reduce",
    "_allgather_base_": "all-gather",
    "_reduce_scatter_base_": "reduce-scatter",
    "alltoall_base_": "all-to-all",
}
"""PyTorch's operations, with the names of the collectives."""


@dataclass
class Collectives:
    """Collectives of one process in a step: calls and bytes, by kind and number of processes that take part."""

    calls: dict[tuple[str, int], int] = field(default_factory=dict)
    n_bytes: dict[tuple[str, int], int] = field(default_factory=dict)
    """Bytes of the tensors as they are gathered, scattered or reduced, in all calls together."""

    @property
    def sent(self) -> float:
        """Bytes that the process sends: (n − 1)/n of a tensor, twice for an all-reduce, by ring algorithms."""
        return sum((2 if kind == "all-reduce" else 1) * (n - 1) / n * size for (kind, n), size in self.n_bytes.items())


def count_collectives(
    training: Training, world: int, parallel: Parallel = "ddp", tensor: int = 1, rows: int = 1
) -> Collectives:
    """Collectives of forward and backward pass of ``rows`` rows in process 0 of ``world``.

    The sums of losses and of the gradient norm, some bytes each, are not counted. DDP needs memory for the model, the
    others none.
    """
    device = torch.device("cpu")
    with fake_processes(world):
        mesh = make_mesh(world, tensor, device)
        replicas, layers = mesh[REPLICA], mesh[TENSOR] if tensor > 1 else None
        empty = FakeTensorMode(allow_non_fake_inputs=True) if parallel == "fsdp" or tensor > 1 else nullcontext()
        root = _sharded(training, replicas, layers) if parallel == "fsdp" else None
        with empty:
            if root is None:
                root = _replicated(training, layers)
            else:
                root.to_empty(device=device)
            batch = training.shape.make(rows, device)
            with CollectiveCounter() as counter:
                (root(batch).loss / batch.n_targets).backward()
                if isinstance(root, StepLoss) and parallel == "ddp" and tensor < world:
                    processes = World(0, world, tensor, replicas.get_group())
                    processes.sum_gradients([local(one.grad) for one in root.parameters() if one.grad is not None])
    return counter.collectives


def _sharded(training: Training, replicas: Any, layers: Any) -> nn.Module:
    """The loss of a model that is divided on the meta device, as in a real training."""
    with torch.device("meta"):
        model: nn.Module = build_uninitialized(training.values, "model").train()
    if layers is not None:
        divide_blocks(model, layers)
    root = StepLoss(model, training.task.loss)
    shard(root, replicas, low_precision=False)
    return root


def _replicated(training: Training, layers: Any) -> nn.Module:
    model: nn.Module = build_uninitialized(training.values, "model").train()
    if layers is None:
        return replicate(model, training.task.loss, has_unused=False)
    divide_blocks(model, layers)
    return StepLoss(model, training.task.loss)


class CollectiveCounter(TorchDispatchMode):
    """Counts the collectives of its block."""

    def __init__(self) -> None:
        super().__init__()
        self.collectives = Collectives()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func in FAULT_CHECKS:
            return FAULT_CHECKS[func](args[0])
        name = func.overloadpacket.__name__
        if func.namespace in ("c10d", "_c10d_functional") and name in KINDS:
            tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor)]
            key = KINDS[name], _group_size(args)
            size = max(tensor.numel() * tensor.element_size() for tensor in tensors)
            found = self.collectives
            found.calls[key] = found.calls.get(key, 0) + 1
            found.n_bytes[key] = found.n_bytes.get(key, 0) + size
        return func(*args, **(kwargs or {}))


def _group_size(args: Any) -> int:
    """Number of processes of a collective, from the group or its name among the arguments."""
    if isinstance(args[-1], str):
        return int(_resolve_process_group(GroupName(args[-1])).size())
    group = next(argument for argument in args if isinstance(argument, torch.ScriptObject))
    return int(dist.ProcessGroup.unbox(group).size())


@contextmanager
def fake_processes(world: int, rank: int = 0) -> Iterator[None]:
    """Be ``rank`` of ``world`` processes, of which there is no other."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        yield
    finally:
        dist.destroy_process_group()
