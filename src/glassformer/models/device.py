"""Device of a model: the CPU or a GPU."""

import torch

from glassformer.errors import ConfigError


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
            fault = f"{setting}={name!r} is not a device that can be used here; choose auto, cpu or cuda"
            raise ConfigError(fault) from None
    return device
