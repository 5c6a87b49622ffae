"""Division of a training over devices: memory of one of them by kind, and communication of a step.

Data parallel: every device has all weights and a share of the rows (DDP), or a share of weights, gradients and
optimizer too (FSDP2, Zhao et al. 2023, arXiv:2304.11277). Tensor parallel: the heads and the inner width are divided
(Shoeybi et al. 2019, arXiv:1909.08053).
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from glassformer.layers.block import Block, Stack
from glassformer.models.registry import build_uninitialized, parameters_by_part
from glassformer.planning.devices import HOP_SECONDS, Device

Parallel = Literal["ddp", "fsdp"]

BUCKET_BYTES = 25 * 2**20
"""Gradients that DDP reduces at once (``bucket_cap_mb``)."""


@dataclass(frozen=True)
class ModelSize:
    """Numbers of parameters of the part of a model that one device computes."""

    parts: dict[str, int]
    total: int
    in_stacks: int
    largest_block: int


def model_size(values: dict[str, Any], tensor: int = 1) -> ModelSize:
    """Count the parameters of a model, or of the part that one of ``tensor`` devices has, on the meta device."""
    with torch.device("meta"):
        model: nn.Module = build_uninitialized(values, "model")
        narrow_blocks(model, tensor)
    parts = parameters_by_part(model)
    total = parts.pop("total")
    stacks = {id(p): p.numel() for m in model.modules() if isinstance(m, Stack) for p in m.parameters()}
    blocks = [sum(p.numel() for p in m.parameters()) for m in model.modules() if isinstance(m, Block)]
    return ModelSize(parts, total, sum(stacks.values()), max(blocks, default=0))


def narrow_blocks(model: nn.Module, n: int) -> None:
    """Make ``model`` the part that one of ``n`` tensor-parallel devices computes: its heads and its inner width.

    The weights are new and not initialized. ``train.tensor_parallel`` divides a real model in the same way.
    """
    if n == 1:
        return
    for block in [module for module in model.modules() if isinstance(module, Block)]:
        for attention in filter(None, (block.self_attention, block.cross_attention)):
            attention.n_heads //= n
            attention.n_kv_heads //= n
        for name, linear in block.named_modules():
            if isinstance(linear, nn.Linear):
                by_rows = name.endswith((".output", ".outer"))
                rows, columns = linear.weight.shape
                shape = (rows, columns // n) if by_rows else (rows // n, columns)
                linear.weight = nn.Parameter(linear.weight.new_empty(shape))
                if linear.bias is not None and not by_rows:
                    linear.bias = nn.Parameter(linear.bias.new_empty(rows // n))


@dataclass(frozen=True)
class Memory:
    """Bytes of one device at its peak, by kind."""

    weights: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.activations


@dataclass(frozen=True)
class Settings:
    """Settings of a training that decide its memory."""

    parallel: Parallel
    accumulate: int
    average: bool
    low_precision: bool


def memory(size: ModelSize, settings: Settings, replicas: int, activations: float, peak_gradients: float) -> Memory:
    """Memory with ``replicas`` devices that share the rows.

    Float32 Adam takes 16 bytes a parameter: weight, gradient and two moments. One device without accumulation has few
    gradients at the end of the forward pass, when activations are at their peak, and no activations at the update.
    """
    sharded = settings.parallel == "fsdp" and replicas > 1
    shards = replicas if sharded else 1
    gathered = 2 * size.largest_block + size.total - size.in_stacks if sharded else 0
    copies = 2 * size.in_stacks / shards if settings.low_precision else 0
    weights = 4 * (size.total / shards + gathered) + copies + (4 * size.total / shards if settings.average else 0)
    optimizer = 8 * size.total / shards
    gradients = 4 * size.total / shards
    if replicas == 1 and settings.accumulate == 1:
        if activations + peak_gradients < gradients:  # the peak is at the update
            return Memory(weights, gradients, optimizer, 0.0)
        return Memory(weights, peak_gradients, optimizer, activations)
    return Memory(weights, gradients, optimizer, activations)


@dataclass(frozen=True)
class Communication:
    """Bytes that one device sends in a step, the seconds of that, and those that no computation hides."""

    n_bytes: float
    seconds: float
    exposed: float


def data_parallel_bytes(parallel: Parallel, size: ModelSize, replicas: int, low_precision: bool = False) -> float:
    """2 (W − 1)/W of the gradients for DDP: an all-reduce. 3 (W − 1)/W of the weights for FSDP2, which gathers the
    stacks in both passes, in bfloat16 with ``low_precision``, and scatters the gradients; the rest is gathered once."""
    if parallel == "ddp":
        n_bytes = 2 * 4 * size.total
    else:
        n_bytes = (2 * (2 if low_precision else 4) + 4) * size.in_stacks + 2 * 4 * (size.total - size.in_stacks)
    return n_bytes * (replicas - 1) / replicas


def tensor_parallel_bytes(values: dict[str, Any], n: int, positions: tuple[int, ...], element: int) -> float:
    """All-reduces of activations, one a sub-layer and pass: 4 of batch · length · d_model for a layer of two.

    Attention to the source has one more, of the gradient of the memory. ``positions``: those of a batch, by side.
    """
    if n == 1:
        return 0.0
    width = values["d_model"] * element * 2 * (n - 1) / n
    if "n_layers" in values:  # one stack
        return float(4 * values["n_layers"] * positions[0] * width)
    encoder = 4 * values["n_encoder_layers"] * positions[0]
    decoder = values["n_decoder_layers"] * (6 * positions[1] + positions[0])
    return float((encoder + decoder) * width)


def communication(
    data_bytes: float, tensor_bytes: float, device: Device, replicas: int, tensor: int, backward_seconds: float
) -> Communication:
    """Communication of a step; the reduction of gradients runs beside the backward pass, all but its last bucket."""
    world = replicas * tensor
    bandwidth = (device.link if world <= device.node else device.network) * 1e9
    buckets = max(1, math.ceil(data_bytes / (2 * BUCKET_BYTES)))
    latency = 2 * math.log2(replicas) * HOP_SECONDS if replicas > 1 else 0.0
    data_seconds = data_bytes / bandwidth + buckets * latency
    hidden = min(backward_seconds, data_seconds * (1 - 1 / buckets))
    tensor_seconds = tensor_bytes / (device.link * 1e9)
    return Communication(
        data_bytes + tensor_bytes, data_seconds + tensor_seconds, data_seconds - hidden + tensor_seconds
    )
