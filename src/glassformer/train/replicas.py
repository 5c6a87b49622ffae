"""Replicas of one training: what decides the bits of each process, and the comparison of their weights.

Every process updates its own weights with the same gradients. So the replicas stay equal as long as their programs and
processors compute the same bits, and their memory is sound.
"""

import platform
from typing import Any

import torch
from torch import Tensor

from glassformer.models.registry import weights_of
from glassformer.native.library import kernels
from glassformer.storage.checkpoint import fingerprint
from glassformer.tasks import resolve_name
from glassformer.train.distributed import World, is_divided
from glassformer.train.state import TrainState


def check_programs(world: World, device: torch.device) -> None:
    """Raise ``ConfigError`` if versions differ, or the kind of GPU, or on a CPU threads or instruction sets.

    The error gives both values and both processes.
    """
    if world.size == 1:
        return
    versions = {
        "the version of glassformer": resolve_name("glassformer:__version__"),
        "the version of Python": ".".join(platform.python_version_tuple()[:2]),
        "the version of PyTorch": torch.__version__,
    }
    world.check_equal(versions, "install the same versions on every machine")
    if device.type == "cuda":
        world.check_equal({"the GPU": torch.cuda.get_device_name(device)}, "train on GPUs of one kind")
        return
    threads = {"the number of threads": torch.get_num_threads()}
    world.check_equal(threads, "set train.threads, or give every process as many cores")
    library = kernels()
    instructions = {
        "the instruction set of the kernels": library.arithmetic if library else "none",
        "the instruction set of PyTorch": torch.backends.cpu.get_cpu_capability(),
    }
    way_out = (
        "train on processors of one kind, or set GLASSFORMER_INSTRUCTIONS and ATEN_CPU_CAPABILITY to one that all have"
    )
    world.check_equal(instructions, way_out)


def check_replicas(state: TrainState) -> None:
    """Compare weights, their average and the optimizer state of all processes. Every process has to call it.

    Tensors that are divided among processes are not compared, since each process has another part.

    Raises:
        DataError: They differ; it names the processes and the first tensor.
    """
    world = state.world
    if world.size == 1:
        return
    tensors = _replicated(state)
    digests = world.gather(fingerprint(tensors))
    if len(set(digests)) == 1:
        return
    by_name = world.gather({name: fingerprint({name: tensor}) for name, tensor in tensors.items()})
    name = next(name for name in by_name[0] if len({one.get(name) for one in by_name}) > 1)
    way_out = "nothing is saved; check the memory of their machines, and go on from the newest checkpoint with --resume"
    world.refuse_differing([one.get(name) for one in by_name], f"step {state.counters.step}, {name}", way_out)


def _replicated(state: TrainState) -> dict[str, Tensor]:
    """Tensors that are equal in all processes, by name."""
    weights: dict[str, Any] = weights_of(state.model)
    tensors = dict(weights)
    for name, weight in weights.items():
        for key, value in state.optimizer.state.get(weight, {}).items():
            tensors[f"optimizer.{name}.{key}"] = value
    if state.ema_model is not None:
        tensors |= {f"average.{name}": weight for name, weight in weights_of(state.ema_model).items()}
    return {name: tensor for name, tensor in tensors.items() if not is_divided(tensor)}
