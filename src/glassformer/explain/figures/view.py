"""A view: matrices with the same axes and colors, drawn side by side."""

from dataclasses import dataclass, replace
from typing import Self

from glassformer.errors import ConfigError
from glassformer.explain.figures.svg import svg
from glassformer.explain.matrix import LARGEST, Axis, Matrix, Scale
from glassformer.explain.trace import Trace


@dataclass(frozen=True, eq=False)
class View:
    """Matrices whose axes have the same titles, and whose numbers have the same scale.

    The titles of the axes name queries and keys if the matrices are attention. The numbers are exact and complete.
    Pictures and tables of more than ``largest`` rows or columns are pooled, and their title says so.
    """

    name: str
    title: str
    matrices: list[Matrix]
    largest: int = LARGEST
    """Largest number of rows or columns that pictures and tables show without pooling."""

    @property
    def row_axis(self) -> str:
        """Title of the rows."""
        return self.matrices[0].rows.title

    @property
    def column_axis(self) -> str:
        """Title of the columns."""
        return self.matrices[0].columns.title

    @property
    def scale(self) -> Scale:
        """Meaning and colors of the numbers."""
        return self.matrices[0].scale

    def pooled(self) -> Self:
        """At most ``largest`` rows and columns a matrix, each number the maximum of those it stands for; the title
        says so. Without larger matrices the same object."""
        shape = [max(matrix.values.shape[axis] for matrix in self.matrices) for axis in (0, 1)]
        rows, columns = (-(-length // self.largest) for length in shape)
        if rows == columns == 1:
            return self
        cells = "{} × {} pooled by max, {} × {} to a cell".format(*shape, rows, columns)
        matrices = [matrix.pooled(rows, columns) for matrix in self.matrices]
        return replace(self, title=f"{self.title} · {cells}", matrices=matrices)

    def _repr_html_(self) -> str:
        view = self.pooled()
        return svg(view.title, view.matrices)


def view_tensor(trace: Trace, name: str, **index: int) -> View:
    """A view of what is left of a recorded tensor: a matrix, or one for each entry of the axis in front of it.

    Rows and columns are numbered; ``view`` draws the attention of an example with its tokens.
    """
    if "batch" in trace.axes(name):
        index = {"batch": 0, **index}
    sizes = zip(trace.axes(name), trace[name].shape, strict=True)
    axes = [axis for axis, size in sizes if axis not in index and size > 1]
    values = trace.at(name, **index).double().cpu()
    while values.ndim < 2:
        values, axes = values[None], ["", *axes]
    if values.ndim > 3:
        raise ConfigError(f"{name} has the axes {', '.join(axes)}; fix one of them, as in {axes[0]}=0")
    slices = values[None] if values.ndim == 2 else values
    titles = [""] if values.ndim == 2 else [f"{axes[0]} {number}" for number in range(len(slices))]
    rows, columns = (Axis.of(axis, map(str, range(size))) for axis, size in zip(axes[-2:], slices.shape[1:]))
    finite = values[values.isfinite()]
    low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 1.0)
    scale = Scale(name.rpartition(".")[2].replace("_", " "), min(low, 0.0), high if high > low else low + 1)
    return View(name, name, [Matrix(m.numpy(), rows, columns, t, scale) for t, m in zip(titles, slices, strict=True)])
