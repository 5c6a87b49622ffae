"""Measurement of this machine: its products, memory bandwidth, and the training step at two small sizes.

The step is the one that trains, on the configured engine; a straight line through both sizes gives any number of rows.
"""

import copy
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from glassformer.data.shards.shard_set import CorruptShard
from glassformer.errors import ConfigError
from glassformer.models.device import choose_device
from glassformer.models.registry import build_model
from glassformer.native import accelerate, route
from glassformer.planning.devices import Device
from glassformer.planning.plan import MeasuredStep
from glassformer.planning.profile import Point, measured_profile
from glassformer.planning.record import Recorder, StepRecord
from glassformer.planning.step import Training, record_step
from glassformer.storage.run_folder import RunFolder
from glassformer.train.build import check_compiler
from glassformer.train.host_process import seed_generators
from glassformer.train.optim import build_optimizer, weight_update
from glassformer.train.state import TrainState
from glassformer.train.step import train_step
from glassformer.train.task import Ahead

SIZES = 8, 4
"""The measured batches have an eighth and a quarter of the rows."""
HALF = 2
"""Half of the rows in place of a quarter, where that is quick. The line to all rows multiplies a disturbance of the
larger batch by 7 from a quarter, by 2.3 from half. Estimates of a step of 0.22 s were 0.93 to 1.40 times the step from
a quarter, 0.97 to 1.19 from half."""
HALF_SECONDS = 1.0
"""Longest step of half the rows that is quick."""
REPEATS = 5, 1000
"""Measurements of each call, at least and at most; the median counts, since other work disturbs some of them."""
LEAST_SECONDS = 1.0
"""Mean time, over the calls, of all measurements at least."""
BLOCK_SECONDS = 0.001
"""Calls whose mean time is shorter are measured several at once."""
COPIED_BYTES = 256 * 2**20
ETHERNET = 1.25
"""GB/s between machines: an Ethernet of 10 Gbit/s."""


class RepeatedBatch:
    """Batch source of one batch without end."""

    fingerprint = content_digest = ""
    padding_share = 0.0
    epoch = 0

    def __init__(self, batch: Any):
        self._batch = batch

    def __len__(self) -> int:
        return 1

    def next(self) -> Any:
        return self._batch

    def largest(self) -> Any:
        return self._batch

    def new_corrupt(self) -> list[CorruptShard]:
        return []

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        pass


def measure_machine(training: Training) -> tuple[Device, MeasuredStep]:
    """Measure this machine with the shapes of ``training``; its configuration decides engine, precision and threads."""
    device = choose_device(training.config.train.device, "train.device")
    if device.type != "cpu":
        raise ConfigError("--measure measures a CPU; for a GPU name it with --device, or set train.device=cpu")
    step = measure_step(training)
    rate = product_rate(record_step(training, training.shape.rows, gpu=False))
    bandwidth = copy_bandwidth()
    machine = Device(
        name=f"this machine, {torch.get_num_threads()} threads",
        float32=rate / 1e12,
        memory=_memory_bytes() / 1e9,
        bandwidth=bandwidth / 1e9,
        link=ETHERNET,
        network=ETHERNET,
        node=1,
        price=0.0,
        source="measured",
        reached_products=1.0,
        reached_bandwidth=1.0,
        launch_seconds=0.0,
    )
    return machine, step


def measure_step(training: Training) -> MeasuredStep:
    """Time and memory of a step at two small sizes, and of the update alone, all taken in turn."""
    rows = training.shape.rows
    sizes = sorted({max(1, rows // part) for part in SIZES} | ({2} if 1 < rows < max(SIZES) else set()))
    sizes = [size for size in sizes if size <= rows]
    states = [training_state(training, size) for size in sizes]
    for state in states:
        step(state)
    if rows // HALF > sizes[-1] and seconds_of(partial(step, states[-1])) * min(SIZES) / HALF <= HALF_SECONDS:
        sizes[-1] = rows // HALF
        states[-1] = training_state(training, sizes[-1])
        step(states[-1])
    updates, *seconds = median_seconds(
        [lambda: weight_update(states[0]).apply(), *(partial(step, state) for state in states)]
    )
    points = [
        _point(state, size, max(0.0, each - updates)) for state, size, each in zip(states, sizes, seconds, strict=True)
    ]
    return MeasuredStep(measured_profile(points), updates)


def training_state(training: Training, rows: int) -> TrainState:
    """The state of a training whose batches have ``rows`` rows of arbitrary content."""
    config = training.config
    train = {"accumulate": 1, "dropout_warmup_steps": 0}  # one batch, with the dropout of most of the training
    config = config.model_copy(update={"train": config.train.model_copy(update=train)})
    device = torch.device("cpu")
    seed_generators(config.train.seed, device)
    model = build_model(training.values, "model").train()
    engine, precision = config.train.engine, config.train.precision
    if engine == "compile":
        check_compiler(config, device)
    compute, routes = accelerate(model, engine, precision), route(model, engine, precision)
    batches = Ahead(RepeatedBatch(training.shape.make(rows, device)))
    average = copy.deepcopy(model).requires_grad_(False) if config.train.ema else None
    state = TrainState(config, training.task, model, batches, compute, routes, ema_model=average)
    state.optimizer = build_optimizer(config.optimizer, model)
    return state


def step(state: TrainState) -> None:
    """One training step. Its run folder is used for a faulty batch only, and these have none."""
    run: RunFolder = object.__new__(RunFolder)
    train_step(state, run)


def median_seconds(calls: list[Callable[[], Any]]) -> list[float]:
    """Median time of each call; they are measured in turn, so that a disturbance meets all of them."""
    each = sum(map(seconds_of, calls)) / len(calls)
    times = max(1, min(100, round(BLOCK_SECONDS / max(each, 1e-6))))
    seconds: list[list[float]] = [[] for _ in calls]
    least, most = REPEATS
    total = 0.0
    while len(seconds[0]) < least or (total < LEAST_SECONDS * len(calls) and len(seconds[0]) < most):
        for call, found in zip(calls, seconds, strict=True):
            found.append(seconds_of(call, times))
            total += found[-1] * times
    return [statistics.median(found) for found in seconds]


def seconds_of(call: Callable[[], Any], times: int = 1) -> float:
    """Mean time of ``call``, made so many times."""
    began = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - began) / times


def product_rate(record: StepRecord) -> float:
    """FLOP/s of PyTorch on the matrix products of ``record``, those with most arithmetic."""
    products = sorted(
        ((calls * operation.flops, operation) for operation, calls in record.operations.items() if operation.shapes),
        key=lambda product: -product[0],
    )[:6]
    flops = seconds = 0.0
    for total, operation in products:
        left, right = (torch.randn(shape) for shape in operation.shapes[-2:])
        one = median_seconds([partial(torch.matmul, left, right)])[0]
        flops, seconds = flops + total, seconds + one * total / operation.flops
    return flops / seconds


def copy_bandwidth() -> float:
    """Bytes a second that are read and written while a large tensor is copied."""
    source = torch.ones(COPIED_BYTES // 4)
    target = torch.empty_like(source)
    return 2 * COPIED_BYTES / median_seconds([lambda: target.copy_(source)])[0]


def _point(state: TrainState, rows: int, seconds: float) -> Point:
    record = record_real_step(state)
    return Point(rows, seconds, record.activations, record.peak_gradients)


def record_real_step(state: TrainState) -> StepRecord:
    """Record the memory of forward and backward on the engine of ``state``; its kernels' own buffers are not seen."""
    state.forget_gradients()
    batch = state.batches.next()
    with Recorder(state.model, state.compute_model) as recorder:
        loss = state.task.loss(state.compute_model, batch)
        (loss.loss / batch.n_targets).backward()
    state.forget_gradients()
    return recorder.record


def _memory_bytes() -> float:
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
