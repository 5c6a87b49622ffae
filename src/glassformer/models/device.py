"""Where a model computes: on the CPU, or on a GPU."""

import torch

from glassformer.config import ConfigError


def choose_device(name: str, setting: str = "device") -> torch.device:
    """``auto`` is a GPU where there is one. What cannot be used is a ``ConfigError`` that names the ``setting``."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"{setting}={name!r} is not a device; choose auto, cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"{setting}={name!r}, but PyTorch finds no GPU here; choose auto or cpu")
    if device.type not in ("cpu", "cuda") or (device.index or 0) >= max(1, torch.cuda.device_count()):
        raise ConfigError(f"{setting}={name!r} is not a device that can be used here; choose auto, cpu or cuda")
    return device
