"""Sharded training: weights, gradients and optimizer state are divided among processes by PyTorch's FSDP2.

Zhao et al. 2023, "PyTorch FSDP" (arXiv:2304.11277). Each block gathers its weights for its own forward and backward
pass, so that a process holds one block whole at a time. This module is imported when it is used: importing PyTorch's
takes longer than PyTorch itself.
"""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from glassformer.layers.block import Block, Stack
from glassformer.models.deferred_init import RecordedInit
from glassformer.models.registry import weights_of
from glassformer.storage.tensor_files import Region, Shard, StoredTensors
from glassformer.train.distributed import World, local
from glassformer.train.division import REPLICA, TENSOR
from glassformer.train.reduction import ReduceScatter


def shard(root: nn.Module, mesh: DeviceMesh, low_precision: bool) -> None:
    """Divide the parameters of ``root`` among the processes of ``mesh``; gradients are summed, in float32.

    With ``low_precision``, stacks compute in bfloat16. Their parameters stay float32.
    """
    policy = MixedPrecisionPolicy(cast_forward_inputs=False)
    if low_precision:
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
        for block in [module for module in root.modules() if isinstance(module, Block)]:
            block.register_forward_pre_hook(_cast_inputs)
    for kind in (Block, Stack):
        for part in [module for module in root.modules() if isinstance(module, kind)]:
            fully_shard(part, mesh=mesh, mp_policy=policy)
    fully_shard(root, mesh=mesh)
    for module in root.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
            if mesh.device_type == "cpu":
                module.set_custom_reduce_scatter(cast(Any, ReduceScatter()))  # its interface is in a private module


def _cast_inputs(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs of a block in bfloat16. PyTorch's policy would also try to copy the mask, which is not a tensor."""
    return tuple(one.bfloat16() if isinstance(one, Tensor) and one.is_floating_point() else one for one in inputs)


def region_of(tensor: DTensor) -> Region:
    """The block of ``tensor`` that this process stores."""
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return Region(tuple(offset), tuple(shape))


def shard_of(tensor: DTensor, world: World) -> Shard | None:
    """The shard of ``tensor`` that this process saves; None if it has none, or the first of several that have it."""
    names, region = tensor.device_mesh.mesh_dim_names or (), region_of(tensor)
    divided = {name for name, one in zip(names, tensor.placements, strict=True) if not one.is_replicate()}
    places = {REPLICA: world.replica, TENSOR: world.rank % world.tensor}
    if not region.size or any(place for name, place in places.items() if name not in divided):
        return None
    return Shard(tensor.to_local(), region, tuple(tensor.shape))


def gather(tensor: DTensor) -> Tensor:
    """All shards of ``tensor`` together, by one dimension of the mesh after the other. Every process has to call it.

    ``full_tensor`` does the same, with a warning about two dimensions that divide the same rows.
    """
    for axis in range(tensor.device_mesh.ndim):
        placements = [Replicate() if index == axis else one for index, one in enumerate(tensor.placements)]
        tensor = tensor.redistribute(placements=placements)
    return tensor.to_local()


@torch.no_grad()
def load_shards(targets: Mapping[str, Tensor], stored: StoredTensors) -> None:
    """Read the part of each tensor that this process stores."""
    for name, target in targets.items():
        if isinstance(target, DTensor):
            local, region = target.to_local(), region_of(target)
        else:
            local, region = target, Region.of_whole(target.shape)
        if local.numel():
            local.copy_(stored.read(name, region))


def initialize_shards(model: nn.Module, record: RecordedInit) -> None:
    """Give each weight of ``model``, which has memory since now, the values of an ordinary construction.

    They are drawn on the CPU, by every process.
    """
    weights = weights_of(model)
    parts = {
        name: (w.to_local(), region_of(w)) if isinstance(w, DTensor) else (w.detach(), Region.of_whole(w.shape))
        for name, w in weights.items()
    }
    record.fill({name: tuple(w.shape) for name, w in weights.items()}, parts)


@torch.no_grad()
def copy_shards(source: nn.Module, target: nn.Module) -> None:
    """Copy the weights of ``source`` to ``target``, which is divided in the same way."""
    for one, other in zip(source.parameters(), target.parameters(), strict=True):
        local(other).copy_(local(one))
