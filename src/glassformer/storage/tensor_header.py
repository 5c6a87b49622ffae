"""Validation of a safetensors header, before memory is allocated for its tensors.

The first eight bytes give the length of a JSON object with the dtype, shape and offsets of each tensor. The safetensors
library checks most of it too, but only while it reads the tensors.
"""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError
from glassformer.storage.manifest import parse_object
from glassformer.storage.regular_files import MEGABYTE, open_regular

LONGEST_HEADER = 16 * MEGABYTE
MAX_TENSORS = 100_000
MAX_DIMENSIONS = 8
BITS = {
    **dict.fromkeys(("BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64"), 64),
}


@dataclass(frozen=True)
class TensorInfo:
    """Data type, in the notation of safetensors (``F32``), and shape of a stored tensor."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape) * BITS[self.dtype] // 8


def read_header(path: Path, within: Path) -> dict[str, TensorInfo]:
    """Read the header of the file; raise ``CheckpointError`` unless its tensors fill the rest of the file exactly."""
    try:
        return _tensors(*_read(path, within))
    except ValueError as error:
        raise CheckpointError(f"{within}: {path.relative_to(within)} is damaged: {error}; copy it again") from None


def read_metadata(path: Path, within: Path) -> dict[str, str]:
    """Texts beside the tensors in the header of a file that ``read_header`` has checked."""
    metadata = _read(path, within)[0].get("__metadata__")
    texts = metadata if isinstance(metadata, dict) else {}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _read(path: Path, within: Path) -> tuple[dict[str, Any], int]:
    """Read the header; return it with the number of bytes after it."""
    with open_regular(path, within) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise ValueError("it ends within its header")
        if length > LONGEST_HEADER:
            raise ValueError(f"its header has {length:,} bytes, more than {LONGEST_HEADER:,}")
        data = file.read(length)
    if data.count(b"{") > 2 + MAX_TENSORS:
        raise ValueError(f"it has more than {MAX_TENSORS:,} tensors")
    header = parse_object(data, 4 * MAX_TENSORS)
    if header is None:
        raise ValueError("its header is not a JSON object with unique names")
    return header, size - 8 - length


def _tensors(header: dict[str, Any], size: int) -> dict[str, TensorInfo]:
    tensors, ranges = dict[str, TensorInfo](), list[tuple[int, int]]()
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        match entry:
            case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(begin), int(end)]} if dtype in BITS:
                info = TensorInfo(dtype, tuple(shape))
            case _:
                raise ValueError(f"{name[:100]} has no valid dtype, shape and data_offsets")
        if len(shape) > MAX_DIMENSIONS or not all(type(n) is int and 0 <= n < 2**63 for n in shape):
            raise ValueError(f"{name[:100]} has an invalid shape")
        if isinstance(begin, bool) or isinstance(end, bool) or end - begin != info.n_bytes:
            raise ValueError(f"{name[:100]} has data_offsets that do not match its dtype and shape")
        tensors[name] = info
        ranges.append((begin, end))
    position = 0
    for begin, end in sorted(ranges):
        if begin != position:
            raise ValueError("its tensors overlap or leave a gap")
        position = end
    if position != size:
        raise ValueError(f"its tensors have {position:,} bytes, but the file has {size:,}")
    return tensors
