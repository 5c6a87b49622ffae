"""Names of the axes of recorded tensors, by tap, and recordings that know them."""

import re
from collections.abc import Mapping

from torch import Tensor, nn

from glassformer.errors import ConfigError
from glassformer.layers.dropout import has_active_dropout
from glassformer.taps import Edit, Recording

_POSITION = ("batch", "position", "d_model")
_INNER = ("batch", "position", "d_ff")
_SCORES = ("batch", "head", "query", "key")
_VOCAB = ("batch", "position", "vocab")
_LABEL = ("batch", "label")
_HIDDEN = ("batch", "position", "d_hidden")
_PROJECTION = ("logits", "log_probabilities", "probabilities")

AXES: dict[str, tuple[str, ...]] = {
    "one_hot": _VOCAB,
    "tokens": _POSITION,
    "scaled": _POSITION,
    "encoding": ("position", "d_model"),
    "positioned": _POSITION,
    "segment": _POSITION,
    "segmented": _POSITION,
    "patches": ("batch", "patch", "number"),
    "projected": ("batch", "patch", "d_model"),
    "q": ("batch", "head", "query", "d_k"),
    "k": ("batch", "head", "key", "d_k"),
    "v": ("batch", "head", "key", "d_v"),
    "rotated_q": ("batch", "head", "query", "d_k"),
    "rotated_k": ("batch", "head", "key", "d_k"),
    "scores": _SCORES,
    "scaled_scores": _SCORES,
    "mask": _SCORES,
    "masked_scores": _SCORES,
    "weights": _SCORES,
    "context": ("batch", "head", "query", "d_v"),
    "concatenated": ("batch", "position", "heads_d_v"),
    "result": _POSITION,
    "gate": _INNER,
    "inner": _INNER,
    "activated": _INNER,
    "product": _INNER,
    "sum": _POSITION,
    "mean": ("batch", "position"),
    "deviation": ("batch", "position"),
    "root_mean_square": ("batch", "position"),
    "normed": _POSITION,
    "memory": _POSITION,
    "states": _HIDDEN,
    "combined": _POSITION,
    "pooled": ("batch", "d_model"),
    "embedded": ("batch", "d_model"),
    "forecast": ("batch", "step", "variable"),
    **dict.fromkeys(_PROJECTION, _VOCAB),
    "candidate_tokens": ("sentence", "candidate"),
    "candidate_scores": ("sentence", "candidate"),
    "candidate_parents": ("sentence", "candidate"),
}

OF_KIND: dict[str, dict[str, tuple[str, ...]]] = {
    "bert": {
        "transform.activated": _POSITION,
        **{f"classes.projection.{tap}": _LABEL for tap in _PROJECTION},
        **{f"tags.projection.{tap}": ("batch", "position", "tag") for tap in _PROJECTION},
    },
    "vit": {f"output_projection.{tap}": _LABEL for tap in _PROJECTION},
    "series": dict.fromkeys(("mean", "deviation"), ("batch", "one")),
    "recurrent": dict.fromkeys(("memory", "decoder.cross_attention.result"), _HIDDEN),
}
"""Where one kind of model differs, by the whole name. Of a series each variable is a row of the batch."""


def axes_of(name: str, tensor: Tensor, kind: str = "") -> tuple[str, ...]:
    """The names of the axes of ``tensor``; numbered ones for a tap that is not the package's, or of another shape.

    ``kind`` is that of the model, as its configuration calls it.
    """
    tap = re.sub(r"_\d+$", "", name.rpartition(".")[2])
    known = OF_KIND.get(kind, {}).get(name) or AXES.get(tap, ())
    if len(known) == tensor.ndim:
        return known
    if known[:1] == ("batch",) and len(known) == tensor.ndim + 1:  # one step of a search has no axis of positions
        return tuple(axis for axis in known if axis != "position")
    if tap == "encoding" and len(known) == tensor.ndim - 1:  # of each row its own, where a row holds several texts
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
        return axes_of(name, self[name], self.kind)

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
