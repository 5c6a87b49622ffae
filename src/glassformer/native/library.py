"""The library of the C++ kernels: the variant for this processor, built with the package, and its functions."""

import ctypes
import functools
import hashlib
import os
import platform
import threading
import warnings
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_float, c_int32, c_int64, c_uint64, c_void_p
from pathlib import Path

from glassformer.errors import ConfigError
from glassformer.native import abi
from glassformer.native.abi import (
    Attention,
    BeamSteps,
    DecoderCache,
    Embedding,
    EncoderBatch,
    Extension,
    Linear,
    MatrixProduct,
    NewestTokens,
    PackedStack,
    ProjectedLoss,
    RotaryTables,
    Rotation,
    RowSum,
    SentenceMask,
    TrainingStack,
    Update,
)
from glassformer.native.instructions import REINSTALL, SOURCES, UnavailableError, usable, variants
from glassformer.native.jit import compiled

FOLDER = Path(__file__).parent / "lib"
"""Libraries built with the package, one for each variant."""
ENGINE = "GLASSFORMER_ENGINE"
"""Environment variable: ``jit`` compiles the kernels for the local processor, ``torch`` uses none."""


class Kernels:
    """Functions of the library at ``path``, and the capabilities of the processor.

    Raises ``OSError`` or ``AttributeError`` if it is not a library of the sources with this ``digest``.
    """

    def __init__(self, path: str, digest: str):
        library = ctypes.CDLL(path)
        library.sources.restype = c_char_p
        if library.sources() != digest.encode():
            raise OSError(f"it was built from other sources than those in csrc; {REINSTALL}")
        _check_structs(library)
        self.has_permission = bool(library.has_permission())
        """True if the system lets this process use all the registers that the kernels use."""
        library.arithmetic.restype = c_char_p
        self.arithmetic: str = library.arithmetic().decode("ascii")
        """Version of the sums and random numbers, and the instruction set; the bits of results depend on them."""
        self.panel_size: int = library.panel_size()
        """Outputs of a linear layer are padded to a multiple of this."""
        function = functools.partial(_function, _checker(library))
        self.multiply_matrices = function(library.multiply_matrices, POINTER(MatrixProduct))
        mask = (c_uint64, c_int32)
        self.drop_elements = function(library.drop_elements, c_void_p, c_int64, c_int32, *mask, c_void_p, c_int64)
        self.fill_mask = function(library.fill_mask, POINTER(SentenceMask))
        self.full_attention = function(library.full_attention, POINTER(Attention), c_int32)
        self.has_bfloat16 = bool(library.has_bfloat16())
        """True if stacks can train in bfloat16."""
        self.stack_bytes = function(library.stack_bytes, POINTER(TrainingStack), POINTER(c_int64))
        self.train_stack = function(library.train_stack, POINTER(TrainingStack), c_int32)
        self.scale_numbers = function(library.scale_numbers, c_void_p, c_int64, c_int32, c_float, c_int64)
        self.add_matrix_rows = function(library.add_matrix_rows, POINTER(RowSum))
        self.measure_gradients = function(library.measure_gradients, POINTER(Update))
        self.update_all = function(library.update_all, POINTER(Update))
        self.projected_cross_entropy = function(library.projected_cross_entropy, POINTER(ProjectedLoss))
        self.embed_rows = function(library.embed_rows, POINTER(Embedding), c_int32)
        self.rotate_pairs = function(library.rotate_pairs, POINTER(Rotation))
        self.multiplies_parts = bool(library.multiplies_parts())
        """True if encoders multiply float32 as sums of three bfloat16 numbers (csrc/split.h)."""
        self.packed_bytes = library.packed_bytes
        self.packed_bytes.argtypes, self.packed_bytes.restype = (c_int64, c_int64, c_int32, c_int32), c_int64
        self.pack_weights = function(library.pack_weights, c_void_p, c_int64, c_int64, c_void_p, c_void_p, c_int32)
        self.apply_linear = function(library.apply_linear, POINTER(Linear), c_void_p, c_int64, c_void_p, c_int64)
        stack = (POINTER(PackedStack), POINTER(RotaryTables))
        cache = POINTER(DecoderCache)
        self.encode = function(library.encode, *stack, c_void_p, c_void_p, c_void_p, c_int64, cache, c_int64)
        self.encode_batch = function(library.encode_batch, *stack, POINTER(EncoderBatch), c_int64)
        self.decode = function(library.decode, *stack, POINTER(Linear), POINTER(NewestTokens), cache, c_int64)
        encoding = (c_void_p, cache, POINTER(BeamSteps), c_int64)
        self.search_beams = function(library.search_beams, *stack, POINTER(Linear), *encoding)
        self.log_sums = function(library.log_sums, c_void_p, c_int64, c_int64, c_void_p)
        self.best_of = function(library.best_of, c_void_p, c_int64, c_int64, c_int64, c_void_p, c_void_p)
        self.extend_hypotheses = function(library.extend_hypotheses, POINTER(Extension))


def _check_structs(library: ctypes.CDLL) -> None:
    """Raise ``OSError`` if a struct differs between Python and C++: the kernels would access wrong memory."""
    library.struct_layout.argtypes, library.struct_layout.restype = (c_char_p,), c_char_p
    for name, kind in vars(abi).items():
        if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and kind is not ctypes.Structure:
            *compiled, size = library.struct_layout(name.encode()).decode("ascii").split() or ["no"]
            fields = {field: (int(at), int(bytes_)) for field, at, bytes_ in zip(*[iter(compiled)] * 3, strict=True)}
            if difference := _difference(kind, size, fields):
                raise OSError(f"struct {name}: {difference}; {REINSTALL}")


def _difference(kind: type[ctypes.Structure], size: str, compiled: dict[str, tuple[int, int]]) -> str | None:
    """The first difference of a struct in Python from its ``size`` and fields (offset and size) in C++; or None."""
    if size != str(ctypes.sizeof(kind)):
        return f"{size} bytes in C++, {ctypes.sizeof(kind)} in Python"
    fields = {name: getattr(kind, name) for base in kind.__mro__ for name, *_ in vars(base).get("_fields_", ())}
    mirrored = {name: (field.offset, field.size) for name, field in fields.items()}
    for name in mirrored | compiled:
        there, here = (
            "missing" if name not in layout else "{1} bytes at {0}".format(*layout[name])
            for layout in (compiled, mirrored)
        )
        if there != here:
            return f"field {name} is {there} in C++, {here} in Python"
    return None


def _function(check, function, *types):  # type: ignore[no-untyped-def]
    function.argtypes, function.restype, function.errcheck = types, c_int32, check
    return function


def _checker(library: ctypes.CDLL) -> Callable[[int, object, object], None]:
    """A check of the codes that the functions of ``library`` return (``guarded`` in csrc/api.h)."""
    library.error_message.argtypes, library.error_message.restype = (), c_char_p

    def check(code: int, function: object, arguments: object) -> None:
        if code == 1:
            raise MemoryError("out of memory in the kernels; lower batch_tokens")
        if code:
            raise (IndexError if code == 2 else RuntimeError)(library.error_message().decode())

    return check


def kernels() -> Kernels | None:
    """The kernels, loaded once; None, with one warning, if they are not available."""
    result = _kernels_or_reason()
    return result if isinstance(result, Kernels) else None


def missing_reason() -> str | None:
    """Reason why there are no kernels, or None if there are."""
    result = _kernels_or_reason()
    return result if isinstance(result, str) else None


def loaded() -> Kernels:
    """The kernels, for code that runs only if they are available."""
    available = kernels()
    assert available is not None
    return available


_one_at_a_time = threading.Lock()


def _renew_lock() -> None:
    """Make a new lock in a child process: another thread may have held the old one at the fork."""
    global _one_at_a_time
    _one_at_a_time = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def _kernels_or_reason() -> Kernels | str:
    with _one_at_a_time:
        return _load_once()


def load() -> Kernels | str:
    """Load the kernels; the reason, with a warning, if they are not available."""
    engine = os.environ.get(ENGINE, "").strip()
    if engine not in ("", "jit", "torch"):
        raise ConfigError(f"{ENGINE}={engine!r} is not known; choose jit or torch, or unset it")
    if engine == "torch":
        return f"{ENGINE}=torch"
    try:
        return _compiled() if engine == "jit" else _built()
    except UnavailableError as error:
        return _warn(str(error))
    except (OSError, AttributeError) as error:
        return _warn(f"the kernels cannot be compiled or loaded ({error})")


_load_once = functools.cache(load)


def _warn(reason: str) -> str:
    warnings.warn(f"glassformer runs in PyTorch, which is slower, since {reason}", stacklevel=5)
    return reason


def _compiled() -> Kernels:
    sources = digest()
    with compiled(sources) as path:
        library = Kernels(path, sources)
    if not library.has_permission:
        raise UnavailableError(
            "the system does not permit the instructions of AMX to this process; "
            "set GLASSFORMER_INSTRUCTIONS=x86-64-v4-bf16"
        )
    return library


def _built() -> Kernels:
    """The fastest variant that the processor and the system can run. Raises ``UnavailableError``."""
    candidates, refused = usable(), list[str]()
    for variant in candidates:
        path = FOLDER / f"kernels-{variant.name}.so"
        if path.exists():
            if (library := _load(path)).has_permission:
                return library
            refused.append(variant.name)
    if refused:
        raise UnavailableError(f"the system does not permit the instructions of {', '.join(refused)} to this process")
    raise UnavailableError(_not_built([variant.name for variant in candidates]))


def _load(path: Path) -> Kernels:
    try:
        _check_digest(path)
        return Kernels(str(path), digest())
    except (OSError, AttributeError) as error:
        raise UnavailableError(f"{path} cannot be loaded: {error}") from None


def _not_built(usable_here: list[str]) -> str:
    names = ", ".join(one.name for one in variants())
    if not names:
        return f"the kernels are not built for {platform.machine()}"
    if not usable_here:
        return f"this processor has none of the instruction sets that the kernels are built for ({names})"
    return (
        f"{FOLDER} has no kernels for this processor ({', '.join(usable_here)}); install a C++ compiler and "
        f"{REINSTALL}, or set {ENGINE}=jit to compile them at first use"
    )


def _check_digest(path: Path) -> None:
    """Raise ``OSError`` if the SHA-256 beside a library differs: loading a damaged one may end the process."""
    stored = path.with_name(f"{path.name}.sha256").read_bytes()[:64]
    if hashlib.sha256(path.read_bytes()).hexdigest().encode() != stored:
        raise OSError(f"it is damaged (another SHA-256 than beside it); {REINSTALL}")


def digest() -> str:
    """SHA-256 of the C++ sources; CMakeLists.txt computes the same."""
    files = sorted(one for one in SOURCES.iterdir() if one.suffix in (".cpp", ".h", ".json"))
    listing = [f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}\n" for one in files]
    return hashlib.sha256("".join(listing).encode()).hexdigest()
