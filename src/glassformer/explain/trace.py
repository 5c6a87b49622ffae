"""``with glassformer.trace(model) as t:`` — what was computed, and everything that can be asked of it."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from glassformer.errors import ConfigError
from glassformer.explain.figures.panels import Panel
from glassformer.explain.figures.view import View
from glassformer.explain.formula.formula import AxisRecording, Formula, explain
from glassformer.explain.formula.table import axes_of
from glassformer.taps import Edit, recording


class Trace(AxisRecording):
    """The recorded tensors of ``model``, with the names of their axes.

    ``t[name]`` is the last tensor of that name, ``t.all(name)`` every one in order (a search records one a step).
    """

    def explain(self, name: str, **index: int) -> Formula:
        """Formula of one number: ``t.explain("encoder.layers.0.self_attention.weights", head=3, query=4, key=1)``.

        See ``formula.explain``.
        """
        return explain(self, name, **index)

    def view(self, name: str, **index: int) -> View:
        """A picture of what is left of ``name``: a matrix, or one for each entry of the axis in front of it.

        Rows and columns are numbered; an example (``examine``) draws attention with its words.
        """
        if "batch" in self.axes(name):
            index = {"batch": 0, **index}
        sizes = zip(self.axes(name), self[name].shape, strict=True)
        axes = [axis for axis, size in sizes if axis not in index and size > 1]
        values = self.at(name, **index).double().cpu()
        while values.ndim < 2:
            values, axes = values[None], ["", *axes]
        if values.ndim > 3:
            raise ConfigError(f"{name} has the axes {', '.join(axes)}; fix one of them, as in {axes[0]}=0")
        matrices = values[None] if values.ndim == 2 else values
        titles = [""] if values.ndim == 2 else [f"{axes[0]} {number}" for number in range(len(matrices))]
        rows, columns = ([str(number) for number in range(size)] for size in matrices.shape[1:])
        finite = values[values.isfinite()]
        low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 1.0)
        panels = [Panel(title, rows, columns, matrix.numpy()) for title, matrix in zip(titles, matrices, strict=True)]
        value = name.rpartition(".")[2].replace("_", " ")
        return View(name, name, axes[-2], axes[-1], value, panels, min(low, 0.0), high if high > low else low + 1)

    def to_npz(self, path: str | Path) -> None:
        """Every tensor by its name, bfloat16 (which NumPy lacks) as float32; ``axes`` holds their axes as JSON."""
        arrays = {
            name: (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).cpu().numpy()
            for name, tensor in self._named()
        }
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
            cells = "".join(f"<td>{escape(text)}</td>" for text in (name, axes, f"{low:.4g} … {high:.4g}"))
            rows.append(f"<tr>{cells}</tr>")
        head = "<tr><th>name</th><th>axes</th><th>from … to</th></tr>"
        return f"<table><caption>{escape(repr(self))}</caption>{head}{''.join(rows)}</table>"


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
