"""The command line as a process of its own, for tests of how it ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import glassformer

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(glassformer.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


def started(*arguments: object, **pipes: Any) -> "subprocess.Popen[str]":
    return running("-W", "ignore", "-m", "glassformer", *map(str, arguments), **pipes)


def running(*arguments: str, **pipes: Any) -> "subprocess.Popen[str]":
    """Python that hears signals also where these tests run behind ``nohup``: what is ignored is inherited."""
    command = [sys.executable, *arguments]
    return subprocess.Popen(command, env=ENVIRONMENT, text=True, preexec_fn=_hears, **pipes)


def _hears() -> None:
    for kind in (signal.SIGHUP, signal.SIGINT):
        signal.signal(kind, signal.SIG_DFL)
