"""Time and activations of one batch on one device, as a function of its rows: a roofline, or measured points.

Roofline (Williams, Waterman & Patterson 2009): an operation takes the longer of its arithmetic at the device's rate and
its memory traffic at the device's bandwidth.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from glassformer.planning.devices import Device
from glassformer.planning.record import StepRecord

UPDATE_BYTES = 4 + 28
"""Traffic of the update of a parameter: the gradient for its norm; then weight, gradient and both moments read, and
all but the gradient written."""
AVERAGE_BYTES = 12
"""Further traffic with a moving average: average and weight read, average written."""
ROWS_BETWEEN = 8
"""Factor between the numbers of rows that are recorded; time is nearly linear between them."""


@dataclass(frozen=True)
class Point:
    """One batch of ``rows`` rows: seconds of forward and backward, and bytes at the peak."""

    rows: float
    seconds: float
    activations: float
    peak_gradients: float


@dataclass(frozen=True)
class Profile:
    """Points by their rows, least first, and straight lines between and beyond them."""

    points: tuple[Point, ...]

    def at(self, rows: float) -> Point:
        """The batch of ``rows`` rows."""
        points = self.points
        if len(points) == 1:
            return points[0]
        right = next((i for i, point in enumerate(points[1:], 1) if rows <= point.rows), len(points) - 1)
        before, after = points[right - 1], points[right]
        share = (rows - before.rows) / (after.rows - before.rows)

        def between(low: float, high: float) -> float:
            return max(0.0, low + share * (high - low))

        return Point(
            rows,
            between(before.seconds, after.seconds),
            between(before.activations, after.activations),
            between(before.peak_gradients, after.peak_gradients),
        )


def roofline_profile(
    record: Callable[[int], StepRecord], device: Device, largest: StepRecord, rows: int, least: int
) -> Profile:
    """The profile from ``largest``, the record of ``rows`` rows, and records of fewer, down to ``least``."""
    points, some = [roofline(largest, device, rows)], rows
    while some > least:
        some = max(least, some // ROWS_BETWEEN)
        points.append(roofline(record(some), device, some))
    return Profile(tuple(reversed(points)))


def roofline(record: StepRecord, device: Device, rows: int) -> Point:
    """The point of a recorded batch: the sum of its operations, or the time to start them if that is longer."""
    bandwidth = device.bandwidth * 1e9 * device.reached_bandwidth
    seconds = sum(
        calls * max(operation.flops / product_rate(device, operation.dtype), operation.n_bytes / bandwidth)
        for operation, calls in record.operations.items()
    )
    seconds = max(seconds, record.n_operations * device.launch_seconds)
    return Point(rows, seconds, record.activations, record.peak_gradients)


def product_rate(device: Device, dtype: torch.dtype) -> float:
    """FLOP/s of large products of ``dtype``."""
    peak = device.bfloat16 if dtype in (torch.bfloat16, torch.float16) and device.bfloat16 else device.float32
    return peak * 1e12 * device.reached_products


def update_seconds(parameters: float, device: Device, average: bool) -> float:
    """Time of the update of ``parameters`` parameters by Adam: nothing but memory traffic."""
    per_parameter = UPDATE_BYTES + (AVERAGE_BYTES if average else 0)
    return parameters * per_parameter / (device.bandwidth * 1e9 * device.reached_bandwidth)


def measured_profile(points: Sequence[Point]) -> Profile:
    """The profile through measured ``points``."""
    return Profile(tuple(sorted(points, key=lambda point: point.rows)))
