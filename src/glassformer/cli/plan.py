"""``glassformer plan``: size, time, memory and cost of a training on many devices, before it is run."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from glassformer.cli.io import say, write_errors
from glassformer.cli.options import Configuration, Overrides, SetOverride

if TYPE_CHECKING:
    from glassformer.planning import Device, Estimate, MeasuredStep, Options, Training, TrainingPlan


_Device = Annotated[str, typer.Option(help="Device: p100, v100, a100, h100, h200, b200, l4, rtx4090, …")]
_Measure = Annotated[bool, typer.Option("--measure", help="Measure this machine instead of --device.")]
_World = Annotated[str, typer.Option(metavar="N", help="Numbers of devices: 8, 1,2,8 or 1..4096.")]
_Parallel = Annotated[
    Literal["ddp", "fsdp"] | None,
    typer.Option(help="Copies of the model, or shards (FSDP2). [default: train.parallel]"),
]
_Figure = Annotated[
    Path | None, typer.Option(metavar="FILE.svg", help="Draw time, memory and cost.", show_default=False)
]


def _number(metavar: str, help: str, **bounds: Any) -> Any:
    return typer.Option(metavar=metavar, help=help, **bounds)


_TensorParallel = Annotated[int, _number("N", "Devices that share a layer. [default: train.tensor_parallel]", min=0)]
_Tokens = Annotated[int, _number("N", "Predictions to train on. [default: train.max_steps]", min=0)]
_Length = Annotated[int, _number("N", "Tokens of a text where the data decide. [default: 32, or longest]", min=0)]
_Efficiency = Annotated[
    float | None, typer.Option(min=0.01, max=1, help="Share of the peak rate that products reach. [default: 0.75]")
]
_Price = Annotated[float | None, _number("USD", "Price of a device per hour. [default: devices.toml]", min=0)]
_MeanTime = Annotated[float, _number("HOURS", "Mean time between failures of a device.", min=0.001)]
_Checkpoint = Annotated[float, _number("SECONDS", "Time to save. [default: its size at 1 GB/s]", min=0)]


def command(
    config: Configuration,
    overrides: Overrides = None,
    setting: SetOverride = None,
    device: _Device = "h100",
    measure: _Measure = False,
    world: _World = "1..8",
    parallel: _Parallel = None,
    tensor_parallel: _TensorParallel = 0,
    tokens: _Tokens = 0,
    length: _Length = 0,
    efficiency: _Efficiency = None,
    price: _Price = None,
    mtbf: _MeanTime = 50_000,
    checkpoint: _Checkpoint = 0,
    figure: _Figure = None,
    format: Annotated[Literal["table", "json"], typer.Option(help="Form of the output.")] = "table",
) -> None:
    """Plan a training: memory, time and cost on many devices.

    Nothing is trained, and no data are read. Settings change the configuration.
    """
    from glassformer.planning import Failures, Options, find_device, make_plan, planned_training, worlds_to
    from glassformer.train import read_config

    worlds = worlds_to(world)
    settings = read_config(config, [*(overrides or []), *(setting or [])])
    training = planned_training(settings, str(config), length)
    divided = parallel or settings.train.parallel, tensor_parallel or settings.train.tensor_parallel
    options = Options(*divided, tokens, Failures(mtbf, checkpoint))
    place, measured = _measure(training, options) if measure else (find_device(device), None)
    changed = {"price": price, "reached_products": efficiency}
    place = place.model_copy(update={name: value for name, value in changed.items() if value is not None})
    made = make_plan(training, place, worlds, options, measured)
    if figure is not None:
        _draw(made, config.stem, figure)
    say(json.dumps(as_json(made), ensure_ascii=False) if format == "json" else _text(made, config.stem, options))


def _draw(plan: "TrainingPlan", name: str, path: Path) -> None:
    from glassformer.planning.figure import draw

    with write_errors(str(path)):
        draw(plan, name, path)


def _measure(training: "Training", options: "Options") -> "tuple[Device, MeasuredStep]":
    from glassformer.cli.process import prepare_training
    from glassformer.errors import ConfigError
    from glassformer.planning.measure import measure_machine

    if options.tensor_parallel > 1:
        raise ConfigError("--measure runs on one process; leave out --tensor-parallel")
    prepare_training(training.config.train.threads)
    return measure_machine(training)


def as_json(plan: "TrainingPlan") -> dict[str, Any]:
    """The plan as plain values."""
    values = asdict(plan) | {"device": plan.device.model_dump()}
    for estimate, each in zip(values["estimates"], plan.estimates, strict=True):
        estimate["memory"]["total"] = each.memory.total
        estimate["fits"] = each.memory.total <= plan.device.memory * 1e9
    return values


def _text(plan: "TrainingPlan", name: str, options: "Options") -> str:
    from io import StringIO

    from rich.console import Console

    stream = StringIO()
    console = Console(file=stream, width=80, highlight=False, no_color=True, legacy_windows=False)
    for line in _facts(plan, name, options):
        console.print(line)
    console.print()
    console.print(_memory_table(plan))
    console.print(_table(plan))
    for line in _notes(plan):
        console.print(f"- {line}")
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def _facts(plan: "TrainingPlan", name: str, options: "Options") -> list[str]:
    batch, flops = plan.batch, plan.flops
    parts = ", ".join(f"{part} {count / 1e6:.1f} M" for part, count in plan.size.parts.items() if count)
    widths = " + ".join(map(str, batch["row_tokens"]))
    batches = f"{batch['batches_per_step']} batches of " if batch["batches_per_step"] > 1 else ""
    shares = ", ".join(f"{kind} {flops[kind] / max(1, flops['total']):.0%}" for kind in ("weights", "attention"))
    how = "DDP" if options.parallel == "ddp" else "FSDP2"
    tensor = f", tensor parallel {options.tensor_parallel}" if options.tensor_parallel > 1 else ""
    return [
        f"{name}: {plan.model['kind']}, {plan.size.total:,} parameters ({parts})",
        f"step: {batches}{batch['rows']:,} {batch['unit']} of {widths} tokens, "
        f"{batch['targets_per_step']:,} predictions; {plan.steps:,} steps",
        f"arithmetic: {flops['total'] / 1e12:,.4g} TFLOP a step in matrix products ({shares})",
        f"device: {plan.device.name}, {how}{tensor}",
    ]


def _memory_table(plan: "TrainingPlan") -> Any:
    table = _new_table("memory of a device, GiB", "weights", "gradients", "optimizer", "activations", "total")
    for label, each in _ends(plan.estimates):
        used = each.memory
        kinds = (used.weights, used.gradients, used.optimizer, used.activations, used.total)
        table.add_row(label, *(f"{value / 2**30:,.3f}" for value in kinds))
    return table


def _ends(estimates: "tuple[Estimate, ...]") -> "list[tuple[str, Estimate]]":
    ends = [estimates[0], estimates[-1]] if len(estimates) > 1 else [estimates[0]]
    return [(f"on {each.devices:,} device{'s' if each.devices > 1 else ''}", each) for each in ends]


def _table(plan: "TrainingPlan") -> Any:
    table = _new_table("devices", "rows", "GiB", "fits", "compute", "exposed", "step", "time", "USD", "lost")
    for each in plan.estimates:
        table.add_row(
            f"{each.devices:,}",
            f"{each.rows:,}",
            f"{each.memory.total / 2**30:,.1f}",
            "yes" if each.memory.total <= plan.device.memory * 1e9 else "no",
            duration(each.compute_seconds),
            duration(each.communication.exposed),
            duration(each.step_seconds),
            duration(3600 * each.hours),
            f"{each.cost:,.0f}" if each.cost >= 10 else f"{each.cost:.2f}",
            f"{each.failure_share:.1%}",
        )
    return table


def _new_table(first: str, *others: str) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, justify="right", no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _notes(plan: "TrainingPlan") -> list[str]:
    last = plan.estimates[-1]
    every = max(1, round(last.checkpoint_seconds / last.step_seconds))
    lines = [
        "exposed: communication that no backward pass hides; lost: checkpoints and failures",
        f"on {last.devices:,} device{'s' if last.devices > 1 else ''} a checkpoint every "
        f"{duration(last.checkpoint_seconds)} ({every:,} steps) costs least",
    ]
    return [*lines, *plan.notes]


def duration(seconds: float) -> str:
    """Seconds in a unit with which the number is between 1 and some hundreds."""
    for limit, unit, size in ((1e-3, "µs", 1e-6), (1.0, "ms", 1e-3), (120.0, "s", 1.0), (7200.0, "min", 60.0)):
        if seconds < limit:
            return f"{seconds / size:.3g} {unit}"
    hours = seconds / 3600
    return f"{hours:.3g} h" if hours < 100 else f"{hours / 24:,.3g} d" if hours < 24_000 else f"{hours / 24:,.0f} d"
