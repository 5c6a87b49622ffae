"""Division of a training among processes: which settings allow it, and the grid that the processes form."""

from typing import Any

import torch

from glassformer.errors import ConfigError
from glassformer.tasks import resolve_name
from glassformer.train.config import RunConfig
from glassformer.train.distributed import World, is_divided

REPLICA, TENSOR = "replica", "tensor"
"""Dimensions of the grid: processes with other rows, and with another part of the layers for the same rows."""


def divides(config: RunConfig, world: World) -> bool:
    """True if the processes divide weights and optimizer among them."""
    return config.train.tensor_parallel > 1 or (world.size > 1 and config.train.parallel == "fsdp")


def is_sharded(tensor: Any) -> bool:
    """True if FSDP2 divides ``tensor`` among the processes that have other rows."""
    return is_divided(tensor) and REPLICA in (tensor.device_mesh.mesh_dim_names or ())


def make_mesh(size: int, tensor: int, device: torch.device) -> Any:
    """The ``DeviceMesh`` of ``size`` processes; neighbors, which are often on one machine, divide the layers."""
    init_device_mesh = resolve_name("torch.distributed.device_mesh:init_device_mesh")
    if tensor == 1:  # a group for each process alone would take a message to all others
        return init_device_mesh(device.type, (size,), mesh_dim_names=(REPLICA,))
    return init_device_mesh(device.type, (size // tensor, tensor), mesh_dim_names=(REPLICA, TENSOR))


def guides_head(config: RunConfig) -> bool:
    """True if a head learns word alignments."""
    return bool(getattr(config.data, "alignments", None))


def check_divided(config: RunConfig, world: World) -> None:
    """Raise ``ConfigError`` for settings that need whole weights, and for numbers that do not divide the layers."""
    train, n = config.train, config.train.tensor_parallel
    setting = f"train.tensor_parallel={n}" if n > 1 else "train.parallel=fsdp"
    if train.engine in ("native", "compile"):
        raise ConfigError(
            f"train.engine={train.engine} needs whole weights, and {setting} divides them; choose engine=auto, or "
            + ("tensor_parallel=1" if n > 1 else "parallel=ddp")
        )
    if guides_head(config):
        raise ConfigError(f"{setting} cannot train a guided head; choose parallel=ddp with tensor_parallel=1")
    if n == 1:
        return
    if train.precision == "bfloat16" and train.parallel == "ddp":
        raise ConfigError(f"{setting} computes in bfloat16 with train.parallel=fsdp only; set that, or float32")
    if world.size % n:
        multiples = ", ".join(str(multiple * n) for multiple in (1, 2, 3))
        raise ConfigError(
            f"{setting} does not divide the number of processes, {world.size}; start {multiples}, … processes, or set "
            f"train.tensor_parallel to one of {_divisors(world.size)}"
        )
    check_divisible(config.model.model_dump(), n, setting)


def check_divisible(model: dict[str, Any], n: int, setting: str) -> None:
    """Raise ``ConfigError`` unless ``n`` processes can divide the layers of ``model``, a configuration."""
    if "d_ff" not in model:
        raise ConfigError(f"{setting} divides heads and feed-forward layers, and model.kind={model['kind']} has none")
    sizes = {"n_heads": model["n_heads"], "d_ff": model["d_ff"]}
    if kv_heads := (model.get("attention") or {}).get("n_kv_heads"):
        sizes["attention.n_kv_heads"] = kv_heads
    for name, size in sizes.items():
        if size % n:
            raise ConfigError(
                f"{setting} does not divide model.{name}={size}; choose one of {_divisors(*sizes.values())}"
            )


def _divisors(*numbers: int) -> str:
    """The divisors that all ``numbers`` have in common."""
    return ", ".join(str(n) for n in range(1, min(numbers) + 1) if not any(number % n for number in numbers))
