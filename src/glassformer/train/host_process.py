"""The host process of a training: random numbers and threads, neither of which a training changes."""

import os
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import TypeVar

import torch
from torch import Tensor

from glassformer.errors import ConfigError
from glassformer.models.device import choose_device

T = TypeVar("T")


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed PyTorch's generators of the CPU and of ``device``.

    ``torch.manual_seed`` gives them the same state, but seeds every other GPU of the process too.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def with_own_random_state(events: Generator[T, None, None], device_name: str) -> Iterator[T]:
    """Iterate over ``events``, a training on ``device_name``, with a random state of its own.

    Layers draw from PyTorch's global generators. While ``events`` computes the next one, they hold its state; while the
    host holds the iterator, they hold the host's. So the host's draws change no training, a training changes no draw of
    the host's, and two trainings can take turns. Saving and restoring takes 20 microseconds an event on a CPU. The
    generators are shared by all threads: another thread that draws meanwhile takes part in the training's numbers.
    """
    device = choose_device(device_name, "train.device")
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())  # the host may choose another one between events
    own: list[Tensor] | None = None
    with closing(events):
        while True:
            host = _random_state(device)
            if own is not None:
                _set_random_state(own, device)
            try:
                event = next(events)
            except StopIteration:
                return
            finally:
                own = _random_state(device)
                _set_random_state(host, device)
            yield event


def _random_state(device: torch.device) -> list[Tensor]:
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def _set_random_state(state: list[Tensor], device: torch.device) -> None:
    torch.set_rng_state(state[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state[1], device)


def check_threads(threads: int) -> None:
    """Raise ``ConfigError`` if ``train.threads`` differs from the number with which this process computes."""
    check_cores(threads)
    now = torch.get_num_threads()
    if threads not in (0, now):
        raise ConfigError(
            f"train.threads={threads}, but this process computes with {now} thread{'s' if now > 1 else ''}; "
            f"call torch.set_num_threads({threads}) first, or leave train.threads out"
        )


def check_cores(threads: int) -> None:
    """Raise ``ConfigError`` if ``train.threads`` exceeds the number of cores that this process may use."""
    cores = available_cores()
    if threads > cores:
        choices = "1" if cores == 1 else f"1 to {cores}"
        raise ConfigError(
            f"train.threads={threads}, but this machine has {cores} core{'s' if cores > 1 else ''}; "
            f"choose {choices}, or 0 for PyTorch's choice (on a resume, the run's own number)"
        )


def available_cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
