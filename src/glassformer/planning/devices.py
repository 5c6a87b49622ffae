"""Devices that a training can be planned for: the table ``devices.toml``, and what a device reaches of its peak."""

import functools
import tomllib
from importlib import resources

from pydantic import Field

from glassformer.config import Config
from glassformer.errors import ConfigError, nearest

REACHED_PRODUCTS = 0.75
"""Share of the peak rate that large products reach: an assumption, which no measurement here confirms.

The same order as in https://github.com/stas00/ml-engineering, "Maximum Achievable FLOPS": 200 to 300 of an A100's 312
TFLOP/s.
"""
REACHED_BANDWIDTH = 0.8
"""Share of the peak bandwidth that element-wise operations and copies reach."""
LAUNCH_SECONDS = 5e-6
"""Time of Python and PyTorch to start one operation on a GPU, while the GPU works on an earlier one."""
HOP_SECONDS = 1e-5
"""Latency of one message between nodes, with the software of a collective operation."""


class Device(Config):
    """One device. Rates are of dense products in TFLOP/s, bandwidths in GB/s, memory in GB (10⁹ bytes)."""

    name: str
    float32: float = Field(gt=0)
    bfloat16: float | None = Field(None, gt=0)
    """Peak rate in bfloat16; None if the device has no such instructions."""
    memory: float = Field(gt=0)
    bandwidth: float = Field(gt=0)
    link: float = Field(gt=0)
    """Bandwidth to the other devices of the node, in one direction."""
    network: float = Field(gt=0)
    """Bandwidth of one device to another node."""
    node: int = Field(gt=0)
    """Devices of a node."""
    price: float = Field(ge=0)
    """US dollars per hour."""
    source: str = ""
    reached_products: float = Field(REACHED_PRODUCTS, gt=0, le=1)
    """Share of the peak rate that large products reach."""
    reached_bandwidth: float = Field(REACHED_BANDWIDTH, gt=0, le=1)
    launch_seconds: float = Field(LAUNCH_SECONDS, ge=0)
    """Time to start one operation."""


@functools.cache
def known_devices() -> dict[str, Device]:
    """The table of known devices, by name."""
    text = resources.files("glassformer.planning").joinpath("devices.toml").read_text(encoding="utf-8")
    return {name: Device.parse(values, f"devices.toml, {name}") for name, values in tomllib.loads(text).items()}


def find_device(name: str) -> Device:
    """The device called ``name``; a ``ConfigError`` lists the known ones."""
    devices = known_devices()
    if name.lower() not in devices:
        raise ConfigError(
            f"--device {name}: not a known device; {nearest(name.lower(), list(devices))} "
            f"(known: {', '.join(devices)}; this machine: --measure)"
        )
    return devices[name.lower()]
