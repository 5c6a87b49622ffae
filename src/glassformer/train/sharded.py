"""Sharded training: weights, gradients and optimizer state are divided among processes by PyTorch's FSDP2.

Zhao et al. 2023, "PyTorch FSDP" (arXiv:2304.11277). Each block gathers its weights for its own forward and backward
pass, so that a process holds one block whole at a time. This module is imported when it is used: importing PyTorch's
takes longer than PyTorch itself.
"""

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from glassformer.layers.block import Block, Stack


def shard(root: nn.Module, size: int, device: torch.device, low_precision: bool) -> None:
    """Divide the parameters of ``root`` among ``size`` processes; gradients are summed, in float32.

    With ``low_precision``, stacks compute in bfloat16. Their parameters stay float32.
    """
    mesh = init_device_mesh(device.type, (size,))
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if low_precision else MixedPrecisionPolicy()
    for kind in (Block, Stack):
        for part in [module for module in root.modules() if isinstance(module, kind)]:
            fully_shard(part, mesh=mesh, mp_policy=policy)
    fully_shard(root, mesh=mesh)
    for module in root.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def divided(tensor: Tensor, target: Tensor) -> Tensor:
    """``tensor``, divided as ``target`` is; rank 0 has the values. Every process has to call it."""
    assert isinstance(target, DTensor)
    return distribute_tensor(tensor.to(target.device), target.device_mesh, target.placements)
