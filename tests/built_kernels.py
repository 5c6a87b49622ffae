"""A library of the kernels for this processor, and a compiler that only copies it."""

import shutil
from pathlib import Path

import pytest

from glassformer.native import library
from glassformer.native.instructions import usable
from glassformer.native.jit import compiled


def copy_library(to: Path) -> Path:
    """Copy the library that this process uses to the file ``to``."""
    if library.kernels() is None:
        pytest.skip("there are no kernels here")
    built = [path for one in usable() if (path := library.FOLDER / f"kernels-{one.name}.so").exists()]
    if built:
        shutil.copyfile(built[0], to)
    else:
        with compiled(library.digest()) as path:
            shutil.copyfile(path, to)
    return to


def copying_compiler(folder: Path) -> Path:
    """A command in place of a compiler: it copies the library, and appends a line to ``folder / "compiled"``."""
    made, command = copy_library(folder / "made.so"), folder / "compiler"
    command.write_text(
        f"#!/bin/sh\nwhile [ \"$1\" != -o ]; do shift; done\ncp '{made}' \"$2\"\necho >>'{folder}/compiled'\n"
    )
    command.chmod(0o700)
    return command
