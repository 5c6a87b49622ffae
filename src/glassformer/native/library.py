"""C++ kernels, compiled for this processor on first use and stored in the user's cache."""

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import threading
import warnings
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint64, c_void_p
from pathlib import Path

from glassformer.native import abi
from glassformer.native.abi import (
    Attention,
    Embedding,
    Extension,
    KeyValueCache,
    Linear,
    Product,
    ProjectedLoss,
    RotaryTables,
    Rotation,
    Stack,
    TrainedStack,
    Update,
)
from glassformer.native.private_folder import code_folder, path_of

SOURCES = Path(__file__).parent / "csrc"
FLAGS = [
    "-O3",
    "-march=native",
    "-std=gnu++17",
    "-fno-strict-aliasing",
    "-fno-math-errno",
    "-shared",
    "-fPIC",
    "-pthread",
]


class Kernels:
    """The compiled functions, and the capabilities of the processor."""

    def __init__(self, path: str):
        library = ctypes.CDLL(path)
        _check_structs(library)
        library.arithmetic.restype = c_char_p
        self.arithmetic: str = library.arithmetic().decode("ascii")
        """Version of the sums and random numbers, and the instruction set: results depend on them to the bit."""
        self.panel: int = library.panel_size()
        """Outputs of a linear layer are padded to a multiple of this."""
        self.int8 = bool(library.has_int8())
        self.multiply = _function(library.multiply_matrices, POINTER(Product))
        mask = (c_uint64, c_int32)
        self.drop = _function(library.drop_elements, c_void_p, c_int64, c_int32, *mask, c_void_p, c_int64)
        self.attend = _function(library.attend_whole, POINTER(Attention), c_int32)
        self.bfloat16 = bool(library.has_bfloat16())
        """True if stacks can train in bfloat16."""
        self.stack_bytes = _function(library.stack_bytes, POINTER(TrainedStack), POINTER(c_int64))
        self.train_stack = _function(library.train_stack, POINTER(TrainedStack), c_int32)
        self.measure = _function(library.measure_gradients, POINTER(Update))
        self.update = _function(library.update_all, POINTER(Update))
        self.projected_loss = _function(library.project_and_lose, POINTER(ProjectedLoss))
        self.embed = _function(library.embed_rows, POINTER(Embedding), c_int32)
        self.rotate = _function(library.rotate_pairs, POINTER(Rotation))
        self.pack = _function(library.pack_weights, c_void_p, c_int64, c_int64, c_void_p, c_void_p)
        self.linear = _function(library.apply_linear, POINTER(Linear), c_void_p, c_int64, c_void_p, c_int64)
        self.encode = _function(
            library.encode, POINTER(Stack), POINTER(RotaryTables), c_void_p, c_void_p, c_void_p, c_int64, c_int64
        )
        self.log_sums = _function(library.log_sums, c_void_p, c_int64, c_int64, c_void_p)
        self.best_of = _function(library.best_of, c_void_p, c_int64, c_int64, c_int64, c_void_p, c_void_p)
        self.extend = _function(library.extend_hypotheses, POINTER(Extension))
        arguments = (
            POINTER(Stack),
            POINTER(RotaryTables),
            POINTER(Linear),
            c_void_p,
            c_void_p,
            c_int64,
            POINTER(KeyValueCache),
            c_void_p,
            c_int64,
        )
        self.decode = _function(library.decode, *arguments)


def _check_structs(library: ctypes.CDLL) -> None:
    """Raise ``OSError`` if a struct has different sizes in Python and C++: the kernels would access wrong memory."""
    library.struct_size.argtypes, library.struct_size.restype = (c_char_p,), c_int64
    for name, kind in vars(abi).items():
        if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and kind is not ctypes.Structure:
            compiled, mirrored = library.struct_size(name.encode()), ctypes.sizeof(kind)
            if compiled != mirrored:
                raise OSError(f"struct {name}: {compiled} bytes in C++, {mirrored} in Python; reinstall glassformer")


def _function(function, *types):  # type: ignore[no-untyped-def]
    function.argtypes, function.restype, function.errcheck = types, c_int32, _check
    return function


def _check(code: int, function: object, arguments: object) -> None:
    if code == 1:
        raise MemoryError("out of memory in the kernels; lower batch_tokens")
    if code:
        raise IndexError("a token id is outside the vocabulary; encode the text with the model's tokenizer")


def kernels() -> Kernels | None:
    """Load the kernels; None, with one warning, if they are not available."""
    with _one_at_a_time:
        return _kernels()


def loaded() -> Kernels:
    """The kernels, for code that runs only if they are available."""
    found = kernels()
    assert found is not None
    return found


_one_at_a_time = threading.Lock()


@functools.cache
def _kernels() -> Kernels | None:
    compiler = os.environ.get("CXX", "").strip() or next(filter(shutil.which, ("g++", "clang++", "c++")), None)
    if compiler is None:
        return _without("no C++ compiler is found; install g++ or clang++, or set CXX")
    try:
        return _built(shlex.split(compiler))
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").split("\n")[0]
        return _without(
            f"{compiler} cannot compile the kernels ({said or error.returncode}); set CXX to another compiler"
        )
    except (OSError, ValueError, AttributeError) as error:
        return _without(f"the kernels cannot be compiled or loaded ({error})")


def missing_reason() -> str | None:
    """Reason why there are no kernels, or None if there are."""
    return None if kernels() is not None else _missing[-1]


_missing: list[str] = []


def _without(reason: str) -> Kernels | None:
    _missing.append(reason)
    warnings.warn(f"glassformer runs in PyTorch, which is slower, since {reason}", stacklevel=4)
    return None


def _built(compiler: list[str]) -> Kernels:
    """Load the library of these sources, compiler and processor, or compile it; two processes may do so at once."""
    sources = sorted(SOURCES.iterdir())
    made_by = [*compiler, *FLAGS, _release(compiler[0]), platform.machine(), _processor()]
    key = hashlib.sha256("\0".join(made_by).encode())
    for source in sources:
        key.update(source.read_bytes())
    name = f"kernels-{key.hexdigest()[:16]}.so"
    with code_folder() as folder:
        library = folder.open(name)
        if library is None:
            folder.store(name, _compiled(compiler))
            library = folder.open(name)
        if library is None:
            raise OSError(f"{folder.path / name} changes while it is read; delete it and try again")
        with path_of(library) as path:
            return Kernels(path)


def _compiled(compiler: list[str]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="glassformer-") as folder:
        made, main = Path(folder) / "kernels.so", SOURCES / "kernels.cpp"
        subprocess.run([*compiler, *FLAGS, "-o", str(made), str(main)], check=True, capture_output=True)
        return made.read_bytes()


def _release(compiler: str) -> str:
    """Path and modification time of the compiler, which identify its release without starting it."""
    found = shutil.which(compiler)
    return "" if found is None else f"{os.path.realpath(found)} {os.stat(found).st_mtime_ns}"


def _processor() -> str:
    """Instruction sets of the processor, on which ``-march=native`` depends; machines may share a cache."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
