"""A run continues to the same bits only on the engine and the kernels that began it."""

from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import nn

from glassformer.errors import CheckpointError
from glassformer.layers.block import Stack
from glassformer.native import Route, describe
from glassformer.train.config import RunConfig
from glassformer.train.division import guides_head

EARLIER = "an earlier version"
"""Engine of a checkpoint that stores no routes."""

BEGAN = "resume with the glassformer version and the kind of processor that began the run"


class Engine(NamedTuple):
    """Routes of a training, and the version of its kernels."""

    routes: list[Route]
    kernels: str
    """Version of the kernels' sums and random numbers; empty if they compute nothing."""


def check_same_engine(saved: dict[str, Any], engine: Engine, model: nn.Module, config: RunConfig, origin: str) -> None:
    """Raise ``CheckpointError`` if another engine, or other kernels, trained the run ``saved``."""
    before, now = saved.get("kernels", engine.kernels) or "", engine.kernels  # 0 in the earliest, without kernels
    routes = [[route.part, route.engine] for route in engine.routes]
    stored = [one[:2] for one in saved.get("routes", _early_routes(before, engine.routes, model, config))]
    if stored != routes:
        parts = ", ".join(f"{part} by {engine}" for part, engine in stored if [part, engine] not in routes)
        setting = saved.get("config", {}).get("train", {}).get("engine")
        with_kernels = bool(before) == bool(now)
        needed = None if setting == config.train.engine and with_kernels else _setting({one for _, one in stored})
        raise CheckpointError(
            f"{origin}: trained with {parts or 'other parts'}, but this process has {describe(engine.routes)}; a run "
            f"continues exactly only on the same engine; {needed or BEGAN}, or start a new run"
        )
    if before != now:
        raise CheckpointError(
            f"{origin}: trained with kernels of version {before or 'none'}, but this process has {now or 'none'}; "
            f"a run continues exactly only with the same kernels; {BEGAN}, or start a new run"
        )


def _setting(engines: set[str]) -> str | None:
    """Advice that names the setting with which these engines compute; None if none does."""
    if EARLIER in engines:
        return None
    if any(engine.startswith("native") for engine in engines):
        return "set train.engine=auto with the kernels"
    return f"set train.engine={'compile' if 'compile' in engines else 'torch'}"


def _early_routes(kernels: str, routes: list[Route], model: nn.Module, config: RunConfig) -> list[list[str]]:
    """Routes assumed for a checkpoint that stores none: the present ones if the results are equal to the bit.

    Earlier versions trained whole stacks only with biases and without SiLU. Other parts had other random numbers.
    """
    layers = [module for stack in model.modules() if isinstance(stack, Stack) for module in stack.modules()]
    biased = all(layer.bias is not None for layer in layers if hasattr(layer, "bias"))
    known = all(getattr(layer, "activation", None) is not F.silu for layer in layers)
    if kernels and biased and known and not guides_head(config) and all(route.engine == "native" for route in routes):
        return [[route.part, route.engine] for route in routes]
    return [["the model", EARLIER]]
