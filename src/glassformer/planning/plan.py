"""The plan of a training: size, arithmetic, memory, time, cost and failures for each number of devices."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from glassformer.errors import ConfigError
from glassformer.planning.devices import Device
from glassformer.planning.failures import Failures, overhead
from glassformer.planning.parallel import (
    Communication,
    Memory,
    ModelSize,
    Parallel,
    Settings,
    communication,
    data_parallel_bytes,
    memory,
    model_size,
    tensor_parallel_bytes,
)
from glassformer.planning.profile import Profile, roofline_profile, update_seconds
from glassformer.planning.record import StepRecord
from glassformer.planning.step import Training, record_step
from glassformer.train.division import check_divisible

BACKWARD_SHARE = 2 / 3
"""Share of the backward pass in the time of a batch: it has twice the products of the forward pass."""


@dataclass(frozen=True)
class Options:
    """Settings of a plan beside the configuration of the training."""

    parallel: Parallel = "ddp"
    tensor_parallel: int = 1
    tokens: int = 0
    """Budget of predictions; 0 is ``train.max_steps``."""
    failures: Failures = field(default_factory=Failures)


@dataclass(frozen=True)
class Estimate:
    """Training on ``devices`` devices."""

    devices: int
    rows: int
    """Rows of a batch on the device with most."""
    memory: Memory
    compute_seconds: float
    """Forward and backward of a step."""
    update_seconds: float
    communication: Communication
    step_seconds: float
    checkpoint_seconds: float
    """Seconds between checkpoints that cost least."""
    failure_share: float
    """Time that checkpoints and failures add, as a share of the training time."""
    hours: float
    """Time of the whole training, checkpoints and failures included."""
    cost: float
    """US dollars."""


@dataclass(frozen=True)
class TrainingPlan:
    """A plan: facts of the model and the step, and one estimate for each number of devices."""

    model: dict[str, Any]
    size: ModelSize
    device: Device
    batch: dict[str, Any]
    flops: dict[str, int]
    """Matrix products of a step by kind, with ``total``; those of all devices together."""
    steps: int
    estimates: tuple[Estimate, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class MeasuredStep:
    """Measurements that replace the roofline."""

    profile: Profile
    update_seconds: float


def make_plan(
    training: Training, device: Device, worlds: Sequence[int], options: Options, measured: MeasuredStep | None = None
) -> TrainingPlan:
    """Plan ``training`` for each number of devices in ``worlds``; numbers that cannot be used become a note."""
    config, shape = training.config, training.shape
    low = config.train.precision == "bfloat16" and device.bfloat16 is not None
    possible, notes = _possible(worlds, shape.rows, shape.unit, options.tensor_parallel)
    if config.train.precision == "bfloat16" and not low:
        notes.append(f"{device.name} has no bfloat16: planned in float32")
    on_gpu = measured is None
    tensor = options.tensor_parallel
    if tensor > 1:
        check_divisible(training.values, tensor, f"--tensor-parallel {tensor}")
    size = model_size(training.values)
    record = partial(record_step, training, gpu=on_gpu, low_precision=low, tensor=tensor)
    largest = record(shape.rows)
    if measured is None:
        least = -(-shape.rows // (max(possible) // options.tensor_parallel))
        profile = roofline_profile(record, device, largest, shape.rows, least)
    else:
        profile = measured.profile
    targets = shape.rows * shape.targets * config.train.accumulate
    steps = -(-options.tokens // targets) if options.tokens else config.train.max_steps
    estimator = _Estimator(training, device, options, size, model_size(training.values, tensor), profile, measured, low)
    flops = _flops(largest, config.train.accumulate * options.tensor_parallel)
    estimates = tuple(estimator.estimate(world, steps) for world in possible)
    return TrainingPlan(training.values, size, device, _batch(training, targets), flops, steps, estimates, tuple(notes))


def _possible(worlds: Sequence[int], rows: int, unit: str, tensor: int) -> tuple[list[int], list[str]]:
    """The numbers of devices that can share ``rows`` rows, and a note about the others."""
    if min(worlds) < 1:
        raise ConfigError(f"--world {min(worlds)}: a training needs at least one device")
    fitting = [world for world in worlds if world % tensor == 0 and world // tensor <= rows]
    if not fitting and all(world % tensor for world in worlds):
        multiples = ", ".join(str(factor * tensor) for factor in (1, 2, 3))
        raise ConfigError(
            f"--world {worlds[-1]} is not a multiple of --tensor-parallel {tensor}; choose {multiples}, …"
        )
    if not fitting:
        raise ConfigError(
            f"--world {worlds[0]}: a batch has {rows:,} {unit} to share; choose at most {rows * tensor:,} devices, or "
            "raise the size of the batch"
        )
    notes = []
    if (most := max(worlds)) // tensor > rows:
        notes.append(
            f"more than {rows * tensor:,} devices cannot be used: a batch has {rows:,} {unit} to share; for {most:,} "
            "devices raise the size of the batch"
        )
    return fitting, notes


def _batch(training: Training, targets: int) -> dict[str, Any]:
    shape = training.shape
    return {
        "rows": shape.rows,
        "unit": shape.unit,
        "row_tokens": list(shape.tokens),
        "batches_per_step": training.config.train.accumulate,
        "targets_per_step": targets,
    }


def _flops(record: StepRecord, times: int) -> dict[str, int]:
    kinds = {"weights": 0, "attention": 0}
    for operation, calls in record.operations.items():
        of_weights = operation.name in ("mm", "addmm") or "rnn" in operation.name
        kinds["weights" if of_weights else "attention"] += times * calls * operation.flops
    return kinds | {"total": sum(kinds.values())}


@dataclass(frozen=True)
class _Estimator:
    """Everything about a plan but the number of devices."""

    training: Training
    device: Device
    options: Options
    size: ModelSize
    share: ModelSize
    """The part of the model that one device of a tensor-parallel group computes."""
    profile: Profile
    measured: MeasuredStep | None
    low: bool

    def estimate(self, world: int, steps: int) -> Estimate:
        train, tensor = self.training.config.train, self.options.tensor_parallel
        replicas = world // tensor
        rows = -(-self.training.shape.rows // replicas)
        point = self.profile.at(rows)
        compute = train.accumulate * point.seconds
        settings = Settings(self.options.parallel, train.accumulate, train.ema > 0, self.low)
        used = memory(self.share, settings, replicas, point.activations, point.peak_gradients)
        sent = self._communication(replicas, rows, compute)
        update = self._update(replicas if self.options.parallel == "fsdp" else 1)
        step = compute + sent.exposed + update
        stored = (12 + (4 if train.ema else 0)) * self.size.total
        lost = overhead(self.options.failures, world, stored)
        hours = steps * step * (1 + lost.share) / 3600
        cost = hours * world * self.device.price
        return Estimate(world, rows, used, compute, update, sent, step, lost.interval, lost.share, hours, cost)

    def _communication(self, replicas: int, rows: int, compute: float) -> Communication:
        train, tensor = self.training.config.train, self.options.tensor_parallel
        data = data_parallel_bytes(self.options.parallel, self.share, replicas, self.low)
        exchanges = train.accumulate if self.options.parallel == "fsdp" else 1  # ddp reduces after the last batch
        positions = tuple(rows * length * train.accumulate for length in self.training.shape.tokens)
        element = 2 if self.low else 4
        between = tensor_parallel_bytes(self.training.values, tensor, positions, element)
        backward = BACKWARD_SHARE * compute * exchanges / train.accumulate
        return communication(exchanges * data, between, self.device, replicas, tensor, backward)

    def _update(self, shards: int) -> float:
        if self.measured is not None:
            return self.measured.update_seconds / shards
        return update_seconds(self.share.total / shards, self.device, self.training.config.train.ema > 0)


def worlds_to(text: str) -> list[int]:
    """Numbers of devices: ``8``, ``1,2,8``, or ``1..4096`` for the powers of two in between and both ends."""
    first, dots, last = text.partition("..")
    try:
        if not dots:
            return sorted({int(part) for part in text.split(",")})
        low, high = int(first or 1), int(last)
    except ValueError:
        raise ConfigError(f"--world {text}: not a number of devices; write 8, 1,2,8 or 1..4096") from None
    if high < low:
        raise ConfigError(f"--world {text}: the range is empty; write the smaller number first")
    if low < 1:
        return [low]
    powers = [2**exponent for exponent in range(math.ceil(math.log2(low)), high.bit_length())]
    return sorted({low, high, *(power for power in powers if low <= power <= high)})
