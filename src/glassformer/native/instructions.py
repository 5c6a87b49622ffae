"""Instruction sets: the variants of the kernels, and those that this processor can run."""

import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from glassformer.errors import ConfigError

SOURCES = Path(__file__).parent / "csrc"
REINSTALL = (
    "install glassformer again (`make setup` in a checkout, else `pip install --force-reinstall --no-cache-dir`)"
)
VARIABLE = "GLASSFORMER_INSTRUCTIONS"
"""Environment variable with the name of the only variant to use, for equal bits on different processors."""


class UnavailableError(Exception):
    """Error that explains why there are no kernels."""


@dataclass(frozen=True)
class Variant:
    """The same kernels, compiled for one instruction set."""

    name: str
    flags: list[str]
    """Options of the compiler."""
    features: frozenset[str]
    """Names in /proc/cpuinfo that a processor needs."""


def compiler_flags() -> list[str]:
    """Options of the compiler for every variant."""
    return _table().flags


def variants() -> list[Variant]:
    """Variants for this kind of machine, the fastest first."""
    machine = platform.machine()
    return [variant for where, variant in _table().variants if where == machine]


def usable() -> list[Variant]:
    """Variants that this processor can run, the fastest first; one alone if ``GLASSFORMER_INSTRUCTIONS`` names it.

    Raises ``ConfigError`` if that is unknown here, or beyond this processor.
    """
    known, features = variants(), processor_features()
    runnable = [one for one in known if one.features <= features]
    if not (name := os.environ.get(VARIABLE, "").strip()):
        return runnable
    if name not in [one.name for one in runnable]:
        reason = "is not known" if name not in [one.name for one in known] else "is more than this processor can run"
        choice = f"choose from {', '.join(one.name for one in runnable)}" if runnable else f"unset {VARIABLE}"
        raise ConfigError(f"{VARIABLE}={name!r} {reason}; {choice}")
    return [one for one in runnable if one.name == name]


def processor_features() -> frozenset[str]:
    """Instruction sets of the processor as Linux names them; empty on other systems."""
    return frozenset(processor_line().partition(":")[2].split())


def processor_line() -> str:
    """The line of /proc/cpuinfo with the instruction sets."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


class _Table(NamedTuple):
    flags: list[str]
    variants: list[tuple[str, Variant]]
    """Machines and their variants."""


def _table() -> _Table:
    path = SOURCES / "variants.json"
    try:
        table = json.loads(path.read_bytes())
        listed = [
            (one["machine"], one["name"], list(one["flags"]), frozenset(one["features"])) for one in table["variants"]
        ]
        return _Table(list(table["flags"]), [(machine, Variant(*rest)) for machine, *rest in listed])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UnavailableError(f"{path} is damaged ({type(error).__name__}: {error}); {REINSTALL}") from None
