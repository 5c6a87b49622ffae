"""Device of a model, and copies of it whose layers compute in a lower precision than its weights are kept in."""

import copy
import functools
import platform
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

from glassformer.errors import ConfigError
from glassformer.layers.block import Stack

CPUINFO = Path("/proc/cpuinfo")
"""The file in which Linux lists the features of the processor."""


def choose_device(name: str, setting: str = "device") -> torch.device:
    """``auto`` is a GPU where there is one. What cannot be used here is a ``ConfigError`` that names ``setting``."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"{setting}={name!r} is not a device; choose auto, cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"{setting}={name!r}, but PyTorch finds no GPU here; choose auto or cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        last = torch.cuda.device_count() - 1
        raise ConfigError(f"{setting}={name!r}, but the last GPU that PyTorch finds here is cuda:{last}; choose that")
    if device.type not in ("cpu", "cuda"):
        try:
            torch.zeros((), device=device).item()
        except Exception:  # each kind that is missing has an error of its own, most of them long
            message = f"{setting}={name!r} is not a device that can be used here; choose auto, cpu or cuda"
            raise ConfigError(message) from None
    return device


def cast_stacks(model: nn.Module, dtype: torch.dtype) -> Any:
    """``model`` with its stacks in ``dtype``; embeddings and output projection are shared, not copied."""
    stacks = {name for name, module in model.named_modules() if isinstance(module, Stack)}
    copied = {id(p) for name in stacks for p in model.get_submodule(name).parameters()}
    lower = copy.deepcopy(model, {id(p): p for p in model.parameters() if id(p) not in copied})
    for name in stacks:
        lower.get_submodule(name).to(dtype)
    return lower


def for_decoding(model: nn.Module, dtype: torch.dtype) -> Any:
    """``model`` with its stacks and its output projection in ``dtype``; embeddings are shared."""
    lower = cast_stacks(model, dtype)
    projection = copy.copy(lower.output_projection)
    projection._parameters = {
        name: None if p is None else nn.Parameter(p.detach().to(dtype), requires_grad=False)
        for name, p in projection._parameters.items()
    }
    lower.output_projection = projection
    return lower


def fast_in_bfloat16(device: torch.device) -> bool:
    """True unless the processor only emulates bfloat16, more slowly than it computes in float32; then it warns once."""
    return device.type != "cpu" or _processor_has_bfloat16()


@functools.cache
def _processor_has_bfloat16() -> bool:
    if platform.machine() in ("x86_64", "AMD64"):
        has_bfloat16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    else:
        has_bfloat16 = platform.machine() != "aarch64" or _linux_lists_bfloat16()
    if has_bfloat16:
        return True
    warnings.warn("this processor has no bfloat16 instructions; glassformer computes in float32", stacklevel=3)
    return False


def _linux_lists_bfloat16() -> bool:
    try:
        return "bf16" in CPUINFO.read_text().split()
    except OSError:
        return True
