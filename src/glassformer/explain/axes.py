"""What the axes of a recorded tensor are called, by the name of its tap."""

from torch import Tensor

_POSITION = ("batch", "position", "d_model")
_SCORES = ("batch", "head", "query", "key")

AXES: dict[str, tuple[str, ...]] = {
    "one_hot": ("batch", "position", "vocab"),
    "tokens": _POSITION,
    "scaled": _POSITION,
    "encoding": ("position", "d_model"),
    "positioned": _POSITION,
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
    "inner": ("batch", "position", "d_ff"),
    "activated": ("batch", "position", "d_ff"),
    "sum": _POSITION,
    "mean": ("batch", "position"),
    "deviation": ("batch", "position"),
    "normed": _POSITION,
    "memory": _POSITION,
    "logits": ("batch", "position", "vocab"),
    "log_probabilities": ("batch", "position", "vocab"),
    "probabilities": ("batch", "position", "vocab"),
    "candidate_tokens": ("sentence", "candidate"),
    "candidate_scores": ("sentence", "candidate"),
    "candidate_parents": ("sentence", "candidate"),
}


def axes_of(name: str, tensor: Tensor) -> tuple[str, ...]:
    """The names of the axes of ``tensor``; numbered ones for a tap that is not the package's, or of another shape."""
    known = AXES.get(name.rpartition(".")[2], ())
    if len(known) == tensor.ndim:
        return known
    if known[:1] == ("batch",) and len(known) == tensor.ndim + 1:  # one step of a search has no axis of positions
        return tuple(axis for axis in known if axis != "position")
    return tuple(f"axis_{number}" for number in range(tensor.ndim))
