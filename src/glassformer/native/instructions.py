"""Instruction sets: the variants of the kernels, and those that this processor can run."""

import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.errors import ConfigError

SOURCES = Path(__file__).parent / "csrc"
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
    return list(_table()["flags"])


def variants() -> list[Variant]:
    """Variants for this kind of machine, the fastest first."""
    machine = platform.machine()
    return [
        Variant(each["name"], each["flags"], frozenset(each["features"]))
        for each in _table()["variants"]
        if each["machine"] == machine
    ]


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


def _table() -> dict[str, Any]:
    return json.loads((SOURCES / "variants.json").read_bytes())
