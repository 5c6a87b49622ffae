"""Tensor parallelism: the processes of a group divide the heads and the inner width of each block.

Shoeybi et al. 2019, "Megatron-LM" (arXiv:1909.08053): the projections to queries, keys, values and inner width are
divided by columns, those back to d_model by rows. Each sub-layer has one all-reduce in each pass; all else is computed
by every process of the group. This module is imported when it is used, like ``sharded``.
"""

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.block import Block
from glassformer.layers.dropout import has_active_dropout
from glassformer.train.host_process import seed_generators


def divide_blocks(model: nn.Module, mesh: DeviceMesh) -> None:
    """Divide each block of ``model``, which may be on the meta device, among the processes of ``mesh``."""
    for block in [module for module in model.modules() if isinstance(module, Block)]:
        parallelize_module(block, mesh, block_plan(block))
        for attention in filter(None, (block.self_attention, block.cross_attention)):
            attention.n_heads //= mesh.size()
            attention.n_kv_heads //= mesh.size()
            separate_dropout(attention, mesh.get_local_rank())


def block_plan(block: Block) -> dict[str, ParallelStyle]:
    """The division of each linear transformation of ``block``.

    The input of a sub-layer is prepared once, so that the gradients of its projections are summed before they are
    reduced, in one all-reduce.
    """
    x = Replicate()
    plan: dict[str, ParallelStyle] = {
        "self_attention": PrepareModuleInput(input_layouts=(x,), desired_input_layouts=(x,)),
        "feed_forward": PrepareModuleInput(input_layouts=(x,), desired_input_layouts=(x,)),
        "feed_forward.inner": ColwiseParallel(),
        "feed_forward.outer": RowwiseParallel(),
    }
    if hasattr(block.feed_forward, "gate"):
        plan["feed_forward.gate"] = ColwiseParallel()
    attentions = ["self_attention"]
    if block.cross_attention is not None:
        attentions.append("cross_attention")
        layouts = (x, x, None, None)  # of x, memory, mask and cache
        plan["cross_attention"] = PrepareModuleInput(input_layouts=layouts, desired_input_layouts=layouts)
    for name in attentions:
        plan |= {f"{name}.{part}": ColwiseParallel() for part in ("query", "key", "value")}
        plan[f"{name}.output"] = RowwiseParallel()
    return plan


def separate_dropout(attention: MultiHeadAttention, rank: int) -> None:
    """Let the dropout of ``attention`` draw from a sequence of this process, whose heads are its own.

    All other dropout is of activations that every process of the group has, and draws from their common sequence.
    """
    before: list[tuple[torch.Tensor, torch.Tensor | None]] = []

    def begin(*_: Any) -> None:
        if has_active_dropout(attention):
            before.append(_own_sequence(rank, next(attention.parameters()).device))

    def end(*_: Any) -> None:
        if before:
            _restore_sequence(before.pop(), next(attention.parameters()).device)

    attention.register_forward_pre_hook(begin)
    attention.register_forward_hook(end)


def _own_sequence(rank: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Seed the generators by the next number of the common sequence and ``rank``; return their states before."""
    seed = int(torch.randint(2**62, ()))
    cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    common = torch.get_rng_state(), cuda
    seed_generators(seed ^ rank, device)
    return common


def _restore_sequence(states: tuple[torch.Tensor, torch.Tensor | None], device: torch.device) -> None:
    common, cuda = states
    torch.set_rng_state(common)
    if cuda is not None:
        torch.cuda.set_rng_state(cuda, device)
