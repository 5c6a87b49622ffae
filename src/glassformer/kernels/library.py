"""The C++ of this folder, compiled for this processor when it is first asked for and kept in the user's cache."""

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
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_uint64, c_void_p
from pathlib import Path

FLAGS = ["-O3", "-march=native", "-std=gnu++17", "-shared", "-fPIC", "-fopenmp"]


class Linear(Structure):
    """Weights ``[outputs, inputs]``, packed; with scales they are in eight bits."""

    _fields_ = (
        ("outputs", c_int32),
        ("inputs", c_int32),
        ("weights", c_void_p),
        ("scales", c_void_p),
        ("bias", c_void_p),
    )


class Norm(Structure):
    """A layer normalisation, or none where the weight is null."""

    _fields_ = (("weight", c_void_p), ("bias", c_void_p), ("epsilon", c_float))


class Layer(Structure):
    """One block; what an encoder lacks stays zero."""

    _fields_ = (
        *((name, Norm) for name in ("own_norm", "cross_norm", "feed_forward_norm")),
        *((name, Linear) for name in ("own", "own_output", "query", "memory", "cross_output", "inner", "outer")),
    )


class Stack(Structure):
    """N blocks. The three sizes after ``d_model`` are of the heads."""

    _fields_ = (
        *((name, c_int32) for name in ("layers", "d_model", "n_heads", "d_k", "d_v", "pre_norm", "activation")),
        ("layer", POINTER(Layer)),
        ("last", Norm),
        ("embedding", c_void_p),
        ("vocabulary", c_int64),
    )


class Past(Structure):
    """What hypotheses have behind them; see kernels.cpp."""

    _fields_ = (
        ("positions", c_int64),
        ("past", POINTER(c_void_p)),
        ("past_rows", POINTER(c_int64)),
        ("ancestor", c_void_p),
        ("stride", c_int64),
        ("memory", POINTER(c_void_p)),
        ("first", c_void_p),
        ("length", c_void_p),
        ("rows_per_sentence", c_int64),
    )


class Operand(Structure):
    """A matrix of a product: its address, and how far apart entries lie across and along the summed axis."""

    _fields_ = (("data", c_void_p), ("across", c_int64), ("along", c_int64))


class Product(Structure):
    """``result = a · b + bias``; see products.h."""

    _fields_ = (
        *((name, c_int64) for name in ("rows", "columns", "depth")),
        ("a", Operand),
        ("b", Operand),
        ("bias", c_void_p),
        ("result", c_void_p),
        ("threads", c_int64),
    )


class Sequences(Structure):
    """Rows of numbers of each head of each batch, and how far apart they lie."""

    _fields_ = (("data", c_void_p), *((name, c_int64) for name in ("batch", "head", "position")))


class Attention(Structure):
    """See training_attention.h."""

    _fields_ = (
        *((name, c_int64) for name in ("batch", "heads", "queries", "keys", "d_k", "d_v")),
        *((name, Sequences) for name in ("q", "k", "v", "context", "d_q", "d_k_", "d_v_", "d_context")),
        ("mask", c_void_p),
        *((name, c_int64) for name in ("mask_batch", "mask_head", "mask_query", "mask_key")),
        ("log_sums", c_void_p),
        ("seed", c_uint64),
        ("threshold", c_int32),
        ("bfloat16", c_int32),
        ("threads", c_int64),
    )


class Kernels:
    """The compiled functions, and what the processor offers."""

    def __init__(self, path: Path):
        library = ctypes.CDLL(str(path))
        self.panel: int = library.panel_size()
        """Outputs are padded to a multiple of this."""
        self.int8 = bool(library.has_int8())
        self.multiply = _function(library.multiply_matrices, POINTER(Product))
        mask = (c_uint64, c_int32)
        self.drop = _function(library.drop_elements, c_void_p, c_int64, c_int32, *mask, c_void_p, c_int64)
        self.attend = _function(library.attend_whole, POINTER(Attention), c_int32)
        sizes, target = (c_int64, c_int64, c_int32), (c_void_p, c_float)
        self.softmax = _function(library.softmax_with_target, c_void_p, *sizes, *target, c_void_p, c_void_p, c_int64)
        self.pack = _function(library.pack_weights, c_void_p, c_int64, c_int64, c_void_p, c_void_p)
        self.linear = _function(library.apply_linear, POINTER(Linear), c_void_p, c_int64, c_void_p)
        self.encode = _function(library.encode, POINTER(Stack), c_void_p, c_void_p, c_void_p, c_int64)
        self.log_sums = _function(library.log_sums, c_void_p, c_int64, c_int64, c_void_p)
        self.best_of = _function(library.best_of, c_void_p, c_int64, c_int64, c_int64, c_void_p, c_void_p)
        arguments = (POINTER(Stack), POINTER(Linear), c_void_p, c_void_p, c_int64, POINTER(Past), c_void_p)
        self.decode = _function(library.decode, *arguments)


def _function(function, *types):  # type: ignore[no-untyped-def]
    function.argtypes, function.restype, function.errcheck = types, c_int32, _check
    return function


def _check(code: int, function: object, arguments: object) -> None:
    if code == 1:
        raise MemoryError("the kernels do not get the memory they need")
    if code:
        raise IndexError("a token's id is beyond the vocabulary")


def kernels() -> Kernels | None:
    """None where they cannot be had, which is said once."""
    with _one_at_a_time:
        return _kernels()


_one_at_a_time = threading.Lock()


@functools.cache
def _kernels() -> Kernels | None:
    compiler = os.environ.get("CXX") or next(filter(shutil.which, ("g++", "clang++", "c++")), None)
    if compiler is None:
        return _without("no C++ compiler is found (g++, clang++ or $CXX)")
    try:
        return Kernels(_built(shlex.split(compiler)))
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").split("\n")[0]
        return _without(f"{compiler} cannot compile its kernels ({said or error.returncode})")
    except (OSError, ValueError, AttributeError) as error:
        return _without(f"its kernels cannot be compiled or loaded ({error})")


def _without(reason: str) -> Kernels | None:
    warnings.warn(f"glassformer goes on without its compiled kernels, slower: {reason}", stacklevel=4)
    return None


def _built(compiler: list[str]) -> Path:
    """The shared library of these sources, this compiler and this processor; two processes may make it at once."""
    sources = sorted(path for path in Path(__file__).parent.iterdir() if path.suffix in (".cpp", ".h"))
    key = hashlib.sha256("\0".join([*compiler, *FLAGS, platform.machine(), _processor()]).encode())
    for source in sources:
        key.update(source.read_bytes())
    cache = _folder()
    library = cache / f"kernels-{key.hexdigest()[:16]}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            made = Path(folder) / library.name
            main = str(Path(__file__).with_name("kernels.cpp"))
            subprocess.run([*compiler, *FLAGS, "-o", str(made), main], check=True, capture_output=True)
            with made.open("rb") as stream:
                os.fsync(stream.fileno())  # a library that is only partly there kills whoever loads it
            made.replace(library)
    return library


def _folder() -> Path:
    """The user's cache, or one of this process where nothing can be written there."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(home) / "glassformer"
    try:
        if not folder.is_absolute():  # nobody knows where the user is at home
            raise FileNotFoundError(home)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return Path(tempfile.mkdtemp(prefix="glassformer-"))


def _processor() -> str:
    """What ``-march=native`` depends on: a cache may be shared by machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
