"""``with glassformer.trace(model) as t:`` — what was computed, and everything that can be asked of it."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn

from glassformer.explain.formula.formula import AxisRecording
from glassformer.explain.formula.table import axes_of
from glassformer.taps import Edit, recording
from glassformer.text.decimals import decimal


class Trace(AxisRecording):
    """The recorded tensors of ``model``, with the names of their axes.

    ``t[name]`` is the last tensor of that name, ``t.all(name)`` every one in order (a search records one a step).
    """

    def to_npz(self, path: str | Path) -> None:
        """Every tensor by its name, bfloat16 (which NumPy lacks) as float32; ``axes`` holds their axes as JSON."""
        arrays = {name: as_array(tensor) for name, tensor in self._named()}
        np.savez_compressed(path, axes=np.array(json.dumps(self._axes())), **arrays)  # type: ignore[arg-type]

    def to_safetensors(self, path: str | Path) -> None:
        """Every tensor by its name, in the type it was computed in; the names of axes are in the metadata."""
        tensors = {name: tensor.contiguous().cpu().clone() for name, tensor in self._named()}
        save_file(tensors, path, metadata={"axes": json.dumps(self._axes())})

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        """A name that was passed several times has its number after an ``@``."""
        for name in self:
            every = self.all(name)
            for number, tensor in enumerate(every):
                yield (name if len(every) == 1 else f"{name}@{number}"), tensor

    def _axes(self) -> dict[str, tuple[str, ...]]:
        return {name: axes_of(self.model, name.partition("@")[0], tensor) for name, tensor in self._named()}

    def __repr__(self) -> str:
        return f"<Trace of {type(self.model).__name__}: {len(self)} names>"

    def _repr_html_(self) -> str:
        """In a notebook: what was recorded, with shapes and the range of the numbers."""
        rows = []
        for name, tensor in self._named():
            named = zip(axes_of(self.model, name.partition("@")[0], tensor), tensor.shape, strict=True)
            axes = " × ".join(f"{axis} {size}" for axis, size in named)
            numbers = tensor.double()[tensor.isfinite()] if tensor.is_floating_point() else tensor.double()
            low, high = (float(numbers.min()), float(numbers.max())) if numbers.numel() else (0.0, 0.0)
            cells = "".join(f"<td>{escape(text)}</td>" for text in (name, axes, f"{decimal(low)} … {decimal(high)}"))
            rows.append(f"<tr>{cells}</tr>")
        head = "<tr><th>name</th><th>axes</th><th>from … to</th></tr>"
        return f"<table><caption>{escape(repr(self))}</caption>{head}{''.join(rows)}</table>"


def as_array(tensor: Tensor) -> NDArray[Any]:
    """The numbers of a tensor, in its type if NumPy has it; bfloat16 as float32."""
    array: NDArray[Any] = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).cpu().numpy()
    return array


@contextmanager
def trace(model: nn.Module, keep: str = "*", edits: Mapping[str, Edit] | None = None) -> Iterator[Trace]:
    """Record every tapped tensor of ``model`` whose name matches the glob ``keep``, and apply ``edits``.

    ``edits`` maps globs to functions of a tensor. All that match a name are applied, in their order.

    Raises ``ConfigError`` at the end when nothing was recorded, as after running a compiled model, and when ``keep``
    or an edit names nothing. Nested traces of one model do not see each other: the inner one records.
    """
    current = Trace(model, keep, edits)
    with recording(current):
        yield current
