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

from glassformer.errors import ConfigError
from glassformer.layers.block import Block, Stack
from glassformer.models.registry import build_uninitialized
from glassformer.models.size import parameters_by_part
from glassformer.planning.devices import HOP_SECONDS, Device

Parallel = Literal["ddp", "fsdp"]

BUCKET_BYTES = 25 * 2**20
"""Gradients that DDP reduces at once (``bucket_cap_mb``)."""
DIVISIBLE = ("encoder_decoder", "gpt")
"""Kinds of models whose heads have a width of their own, so that their number can be divided."""


@dataclass(frozen=True)
class ModelSize:
    """Numbers of parameters of the part of a model that one device computes."""

    parts: dict[str, int]
    total: int
    in_stacks: int
    largest_block: int


def model_size(values: dict[str, Any]) -> ModelSize:
    """Count the parameters of a model on the meta device."""
    with torch.device("meta"):
        model: nn.Module = build_uninitialized(values, "model")
    parts = parameters_by_part(model)
    total = parts.pop("total")
    stacks = {id(p): p.numel() for m in model.modules() if isinstance(m, Stack) for p in m.parameters()}
    blocks = [sum(p.numel() for p in m.parameters()) for m in model.modules() if isinstance(m, Block)]
    return ModelSize(parts, total, sum(stacks.values()), max(blocks, default=0))


def divided_model(values: dict[str, Any], n: int) -> dict[str, Any]:
    """The model that one of ``n`` tensor-parallel devices computes: a share of the heads and of the inner width."""
    if n == 1:
        return values
    kind = values["kind"]
    if kind not in DIVISIBLE:
        raise ConfigError(
            f"--tensor-parallel {n} is for model.kind={' and '.join(DIVISIBLE)}, not {kind}; leave it out"
        )
    attention = values.get("attention", {})
    heads = {"n_heads": values["n_heads"], "d_ff": values["d_ff"]}
    if attention.get("n_kv_heads"):
        heads["attention.n_kv_heads"] = attention["n_kv_heads"]
    for name, number in heads.items():
        if number % n:
            raise ConfigError(f"--tensor-parallel {n} does not divide model.{name}={number}; choose a divisor of it")
    d_head = values["d_model"] // values["n_heads"]
    values = values | {"n_heads": values["n_heads"] // n, "d_ff": values["d_ff"] // n}
    if kind == "encoder_decoder":
        return values | {"d_k": values["d_k"] or d_head, "d_v": values["d_v"] or d_head}
    kv_heads = attention["n_kv_heads"]
    divided = {"d_head": attention["d_head"] or d_head, "n_kv_heads": kv_heads and kv_heads // n}
    return values | {"attention": attention | divided}


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


def data_parallel_bytes(parallel: Parallel, parameters: float, replicas: int) -> float:
    """2 (W − 1)/W of the gradients for DDP: an all-reduce. 3 (W − 1)/W for FSDP2, which gathers the weights in both
    passes and scatters the gradients."""
    factor = 2 if parallel == "ddp" else 3
    return factor * (replicas - 1) / replicas * 4 * parameters


def tensor_parallel_bytes(values: dict[str, Any], n: int, positions: tuple[int, ...], element: int) -> float:
    """All-reduces of activations, one a sub-layer and pass: 4 of batch · length · d_model for a layer of two.

    Attention to the source has one more, of the gradient of the memory. ``positions``: those of a batch, by side.
    """
    if n == 1:
        return 0.0
    width = values["d_model"] * element * 2 * (n - 1) / n
    if values["kind"] != "encoder_decoder":
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
