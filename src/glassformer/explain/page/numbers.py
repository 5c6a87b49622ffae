"""The numbers of a page as raw little-endian bytes in base64, each array once."""

from base64 import b64encode
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Slice:
    """Where a matrix begins among the numbers of an array."""

    array: str
    start: int = 0


@dataclass(frozen=True)
class RawArray:
    """``kind`` is ``float16``, ``float32`` or ``float64``."""

    key: str
    kind: str
    base64: str


class Numbers:
    """What ``add`` was given; the same bytes are kept once."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, bytes], str] = {}

    def add(self, values: NDArray[np.floating]) -> str:
        """The key that the array is found under."""
        content = values.dtype.name, values.astype(values.dtype.newbyteorder("<")).tobytes()
        return self._keys.setdefault(content, f"n{len(self._keys)}")

    @property
    def arrays(self) -> list[RawArray]:
        return [RawArray(key, kind, b64encode(content).decode()) for (kind, content), key in self._keys.items()]
