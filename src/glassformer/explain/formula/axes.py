"""Names of the axes of recorded tensors, and recordings that know them."""

from collections.abc import Mapping

from torch import Tensor, nn

from glassformer.errors import ConfigError
from glassformer.explain.formula.table import find_tap
from glassformer.layers.dropout import has_active_dropout
from glassformer.taps import Edit, Recording


def axes_of(model: nn.Module, name: str, tensor: Tensor) -> tuple[str, ...]:
    """The names of the axes of ``tensor``; numbered ones for a tap that is not the package's, or of another shape."""
    tap = find_tap(model, name)
    known = () if tap is None else tap.axes
    if len(known) == tensor.ndim:
        return known
    if known[:1] == ("batch",) and len(known) == tensor.ndim + 1:  # one step of a search has no axis of positions
        return tuple(axis for axis in known if axis != "position")
    if name.endswith(".encoding") and len(known) == tensor.ndim - 1:  # one for each row, where rows hold several texts
        return ("batch", *known)
    return tuple(f"axis_{number}" for number in range(tensor.ndim))


class AxisRecording(Recording):
    """The recorded tensors of ``model``, with the names of their axes."""

    def __init__(self, model: nn.Module, keep: str = "*", edits: Mapping[str, Edit] | None = None):
        super().__init__(model, keep, edits)
        self.model = model
        self.kind = str(getattr(getattr(model, "config", None), "kind", ""))
        """Of the model, as its configuration calls it."""
        self.dropped = has_active_dropout(model)
        """Whether dropout was on, so that no formula gives the numbers."""

    def axes(self, name: str) -> tuple[str, ...]:
        """``("batch", "head", "query", "key")`` for attention weights."""
        return axes_of(self.model, name, self[name])

    def at(self, name: str, **index: int) -> Tensor:
        """What is left of ``name`` when the axes named in ``index`` are fixed; axes of one entry are when not named."""
        place = self.place(name, index)
        sizes = zip(self.axes(name), self[name].shape, strict=True)
        return self[name][tuple(place.get(axis, 0 if size == 1 else slice(None)) for axis, size in sizes)]

    def place(self, name: str, index: Mapping[str, int]) -> dict[str, int]:
        """``index``, counted from 0. A ``ConfigError`` names what is not an axis of ``name``, and what lies outside."""
        sizes = dict(zip(self.axes(name), self[name].shape, strict=True))
        for axis, chosen in index.items():
            if axis not in sizes:
                raise ConfigError(f"{name} has no axis {axis!r}; its axes are {', '.join(sizes)}")
            if not -sizes[axis] <= chosen < sizes[axis]:
                raise ConfigError(f"{axis}={chosen} is outside {name}; choose from 0 to {sizes[axis] - 1}")
        return {axis: chosen % sizes[axis] for axis, chosen in index.items()}
