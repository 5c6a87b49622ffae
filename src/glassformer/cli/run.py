"""The run that a command uses: check its task, load it, and describe it with ``--verbose``."""

import functools
import hashlib
import inspect
import json
from collections.abc import Callable
from time import perf_counter
from typing import Any, TypeVar

from glassformer.cli.imports import postpone_meta_kernels
from glassformer.cli.messages import Verbosity, detail, verbosity
from glassformer.cli.process import loading, owns_process
from glassformer.tasks import tasks_with

Predictor = TypeVar("Predictor")


def check_run_argument(verb: str, command: Callable[..., None]) -> Callable[..., None]:
    """Wrap ``command`` in a check of its run's task; the error names the command that fits.

    In a process of its own, a command of a task imports PyTorch faster (``postpone_meta_kernels``).
    """
    signature, tasks = inspect.signature(command), tasks_with(verb)
    if "run" not in signature.parameters:
        return command

    @functools.wraps(command)
    def checked(*arguments: Any, **named: Any) -> None:
        with loading():
            if tasks and owns_process():
                postpone_meta_kernels()
            from glassformer.predict.loading import check_task

            run = signature.bind(*arguments, **named).arguments.get("run")
            if run and tasks:
                check_task(run, tasks)
        command(*arguments, **named)

    return checked


def load(load_predictor: Callable[..., Predictor], *runs: str, **options: Any) -> Predictor:
    """Load a predictor; garbage collection and Ctrl-C wait until it is loaded."""
    began = perf_counter()
    with loading():
        predictor = load_predictor(*runs, **options)
    describe_run(*runs, device=options.get("device", "cpu"))
    detail(f"loaded in {perf_counter() - began:.2f} s")
    return predictor


def load_with_engine(
    load_predictor: Callable[..., Predictor], run: str, device: str, engine: str, precision: str
) -> Predictor:
    """Load a predictor with the engine and precision of the options, and describe its engine."""
    predictor = load(load_predictor, run, device=device, engine=engine, precision=precision)
    describe_engine(predictor)
    return predictor


def describe_run(*runs: str, device: str = "cpu") -> None:
    """Print the checkpoints of ``runs`` and the device, if the command is verbose."""
    if verbosity() < Verbosity.VERBOSE:
        return
    import torch

    from glassformer.models.device import choose_device
    from glassformer.storage.run_folder import resolve

    for run in runs:
        detail(f"checkpoint: {resolve(run)}")
    place = choose_device(device)
    name = torch.cuda.get_device_name(place) if place.type == "cuda" else f"{torch.get_num_threads()} threads"
    detail(f"device: {place} ({name})")


def describe_engine(predictor: Any, settings: Any = None) -> None:
    """Print the engine of each part of a model and the reason, if the command is verbose.

    ``settings`` has ``engine`` and ``precision``; by default those of ``predictor``.
    """
    if verbosity() < Verbosity.VERBOSE:
        return
    from glassformer.native import grouped, route

    settings = settings or predictor
    for model in getattr(predictor, "models", None) or [predictor.model]:
        for one in grouped(route(model, settings.engine, settings.precision)):
            detail(f"engine: {one}")


def job_of(predictor: Any, settings: Any = None, **values: Any) -> dict[str, str]:
    """Everything that decides the output of ``predictor``, as text by name: checkpoints, routes, device, ``values``.

    ``settings`` has ``engine`` and ``precision``; by default those of ``predictor``. ``ValueError``: a name of
    ``values`` is taken.
    """
    from glassformer.native import describe, route
    from glassformer.storage.manifest import MANIFEST

    settings = settings or predictor
    models = getattr(predictor, "models", None) or [predictor.model]
    checkpoints = []
    for path in getattr(predictor, "checkpoints", None) or [predictor.path]:
        digest = hashlib.sha256((path / MANIFEST).read_bytes()).hexdigest()
        checkpoints.append(f"{path.name} (SHA-256 {digest[:16]})")
    routes = [route(model, settings.engine, settings.precision) for model in models]
    native = any(one.engine.startswith("native") for parts in routes for one in parts)
    job = {
        "model": " + ".join(checkpoints),
        "route": " + ".join(map(describe, routes)),
        "device": predictor.device.type,
        "instructions": _instructions(native),
    }
    if taken := job.keys() & values.keys():
        raise ValueError(f"{', '.join(sorted(taken))}: is a name of the job itself; give the value another name")
    return job | {name: json.dumps(value, ensure_ascii=False) for name, value in values.items()}


def _instructions(native: bool) -> str:
    """The instruction sets that the last bits of results depend on: of PyTorch, and of the kernels if they are used."""
    import torch

    from glassformer.native.library import loaded

    pytorch = f"PyTorch {torch.__version__} {torch.backends.cpu.get_cpu_capability()}"
    return f"{pytorch}, kernels {loaded().arithmetic}" if native else pytorch
