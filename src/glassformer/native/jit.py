"""The kernels compiled for the local processor, with ``GLASSFORMER_ENGINE=jit``, and stored in the user's cache.

This is the only place that starts a compiler.
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glassformer.native.instructions import (
    SOURCES,
    VARIABLE,
    UnavailableError,
    compiler_flags,
    processor_line,
    usable,
)
from glassformer.native.private_folder import code_folder, path_of


@contextmanager
def compiled(digest: str) -> Iterator[str]:
    """Path of the library of these sources, compiler and processor, compiled if the cache has none.

    ``digest`` identifies the sources. Two processes may compile at once. Raises ``UnavailableError``, or ``OSError``
    if the library cannot be stored.
    """
    compiler = _compiler()
    flags = [*compiler_flags(), *_instructions(), "-shared"]
    build = [*compiler, *flags, _release(compiler[0]), platform.machine(), processor_line(), digest]
    name = f"kernels-{hashlib.sha256(chr(0).join(build).encode()).hexdigest()[:16]}.so"
    with code_folder() as folder:
        library = folder.open(name)
        if library is None:
            folder.store(name, _compile([*compiler, *flags, f'-DSOURCES_DIGEST="{digest}"']))
            library = folder.open(name)
        if library is None:
            raise OSError(f"{folder.path / name} changes while it is read; delete it and try again")
        with path_of(library) as path:
            yield path


def _compiler() -> list[str]:
    command = os.environ.get("CXX", "").strip() or next(filter(shutil.which, ("g++", "clang++", "c++")), None)
    if command is None:
        raise UnavailableError("no C++ compiler is found; install g++ or clang++, or set CXX")
    try:
        return shlex.split(command)
    except ValueError as error:
        raise UnavailableError(f"CXX={command!r} is not a command ({error})") from None


def _instructions() -> list[str]:
    return usable()[0].flags if os.environ.get(VARIABLE, "").strip() else ["-march=native"]


def _compile(command: list[str]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="glassformer-") as folder:
        library, units = Path(folder) / "kernels.so", sorted(map(str, SOURCES.glob("*.cpp")))
        try:
            subprocess.run([*command, "-o", str(library), *units], check=True, capture_output=True)
        except subprocess.CalledProcessError as error:
            message = error.stderr.decode(errors="replace").split("\n")[0]
            raise UnavailableError(
                f"{command[0]} cannot compile the kernels ({message or error.returncode}); set CXX to another compiler"
            ) from None
        except OSError as error:
            raise UnavailableError(f"{command[0]} cannot be started ({error})") from None
        return library.read_bytes()


def _release(compiler: str) -> str:
    """Path and modification time of the compiler, which identify its release without starting it."""
    path = shutil.which(compiler)
    return "" if path is None else f"{os.path.realpath(path)} {os.stat(path).st_mtime_ns}"
