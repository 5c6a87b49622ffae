"""Tensors as places of the page: the name of the tensor that a selection means, its two axes, and links back."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from torch import nn

from glassformer.explain.example import Example
from glassformer.explain.formula.expression import TensorIndex
from glassformer.explain.matrix import Axis, Kind, Label
from glassformer.text.tokenizer import Tokenizer
from glassformer.web.explorer.selection import Selection

FIXED = ("batch", "head")
"""Axes that are chosen by other fields than row and column."""
WEIGHTS = ("weights", "probabilities", "mask", "one_hot")
"""Last part of the names of tensors whose numbers are between 0 and 1."""
TOKENS = ("position", "query", "key", "patch")


def tensor_of(selection: Selection) -> str:
    """Name of the tensor that ``selection`` shows."""
    return ".".join(filter(None, (selection.path, selection.stage)))


def kind_of(name: str) -> Kind:
    """Colors of a tensor."""
    return "weights" if name.rpartition(".")[2] in WEIGHTS else "signed"


def grid_axes(example: Example, name: str) -> tuple[str, ...]:
    """Names of the one or two axes that a table of ``name`` shows."""
    axes = tuple(axis for axis in example.trace.axes(name) if axis not in FIXED)
    return axes[-2:] or example.trace.axes(name)[-1:]


def size_of(example: Example, name: str, axis: str) -> int:
    """Length of an axis."""
    return int(example.trace[name].shape[example.trace.axes(name).index(axis)])


def head_count(example: Example, name: str) -> int:
    """Heads of a tensor; 0 if it has none."""
    return size_of(example, name, "head") if "head" in example.trace.axes(name) else 0


def head_in(example: Example, name: str, head: int) -> int:
    """Index of a query head in a tensor, whose heads may be shared by a group of queries."""
    return head * head_count(example, name) // _query_heads(example, name)


def _query_heads(example: Example, name: str) -> int:
    queries = f"{name.rpartition('.')[0]}.q"
    return head_count(example, queries if queries in example.trace else name) or 1


def select(selection: Selection, example: Example, name: str, index: Mapping[str, int] | None = None) -> Selection:
    """``selection`` moved to the tensor ``name``, and to the number at ``index`` if there is one."""
    part, layer, sublayer, stage = split_name(example.model, name)
    moved = replace(selection.at_module(part, layer, sublayer), stage=stage)
    if index is None:
        return replace(moved, head=selection.head if head_count(example, name) else None)
    places = [value for axis, value in index.items() if axis not in FIXED]
    heads = head_count(example, name)
    head = index["head"] * _query_heads(example, name) // heads if heads else None
    row, column = [*places[-2:], None][:2] if places else (0, None)
    return replace(moved, head=head, row=row, column=column)


def select_index(selection: Selection, example: Example, place: TensorIndex) -> Selection:
    """``selection`` moved to one number."""
    return select(selection, example, place.name, dict(place.index))


def split_name(model: Any, name: str) -> tuple[str, int | None, str, str]:
    """``decoder.layers.1.cross_attention.norm.mean`` → part, layer, sub-layer and tensor."""
    parts = name.split(".")
    part, layer, sublayer = "", None, ""
    module: Any = model
    if len(parts) > 1 and _child(module, parts[0]) is not None:
        part = parts.pop(0)
        module = _child(module, part)
    if len(parts) > 2 and parts[0] == "layers" and parts[1].isdigit():
        layer = int(parts[1])
        module = _child(module.layers, parts[1])
        del parts[:2]
    if part and len(parts) > 1 and _child(module, parts[0]) is not None:
        sublayer = parts.pop(0)
    return part, layer, sublayer, ".".join(parts)


def _child(module: Any, name: str) -> nn.Module | None:
    child = getattr(module, name, None)
    return child if isinstance(child, nn.Module) else None


def labels_of(example: Example, name: str, axis: str) -> tuple[str, Sequence[Label]]:
    """Title and labels of an axis: tokens with their side, words of a vocabulary, classes, or numbers."""
    size = size_of(example, name, axis)
    stack, kind = name.split(".")[0], "cross_attention" if "cross_attention" in name else "self_attention"
    stack = stack if stack in ("encoder", "decoder") else _stack_of(example, name)
    if axis in TOKENS:
        queries, keys = example.attention_sides(stack, kind)
        side = keys if axis == "key" else queries if axis == "query" else _positions(example, stack, name)
        role = f" ({axis})" if axis in ("query", "key") else ""
        if len(side.labels) == size:
            return f"{side.name}{role}", side.labels
    if axis == "vocab" and example.sides[0].tokenizer is not None:
        return "vocabulary", _words(example.sides[0 if name.startswith("source_embedding") else -1].vocabulary, size)
    if axis in ("label", "tag", "variable") and len(example.labels) == size:
        return axis, [Label(text) for text in example.labels]
    return axis, [Label(str(number)) for number in range(size)]


@lru_cache(maxsize=4)
def _words(tokenizer: Tokenizer, size: int) -> tuple[Label, ...]:
    """Labels of a vocabulary, made once: 16,000 of them take 30 ms."""
    return tuple(Label(text) for text in tokenizer.tokens(range(size)))


def _stack_of(example: Example, name: str) -> str:
    """Stack whose tokens a tensor outside the stacks belongs to."""
    return "encoder" if not example.translated or name.startswith(("source_", "memory")) else "decoder"


def _positions(example: Example, stack: str, name: str) -> Any:
    """Side of a tensor with one vector for each position; at the output, positions are named by what they predict."""
    if example.translated and name.startswith("output_projection"):
        return example.attention_sides("decoder", "cross_attention")[0]
    return example.attention_sides(stack, "self_attention")[0]


def axis_of(example: Example, name: str, axis: str, indices: Sequence[int]) -> Axis:
    """An axis of a table, with the labels at ``indices``."""
    title, labels = labels_of(example, name, axis)
    return Axis(title, tuple(labels[index] for index in indices), axis, tuple(indices))


def resolve_selection(selection: Selection, example: Example, notes: list[str]) -> Selection:
    """The nearest view that the example has; ``notes`` gets a line for each change."""
    selection = _resolve_step(_resolve_module(selection, example, notes), example, notes)
    if not selection.stage:
        return replace(_resolve_head(selection, example, notes), row=None, column=None)
    name = tensor_of(selection)
    if name not in example.trace:
        notes.append(f"There is no tensor {name[:60]!r} here; this is the view above it.")
        return _resolve_head(replace(selection, stage="", row=None, column=None), example, notes)
    if head_count(example, name):
        selection = replace(selection, head=selection.head or 0)
    selection = _resolve_head(selection, example, notes)
    if selection.row is None:
        return replace(selection, column=None)
    axes = grid_axes(example, name)
    row = _nearest_index(axes[0], selection.row, size_of(example, name, axes[0]), notes)
    column = None
    if len(axes) > 1:
        column = _nearest_index(axes[1], selection.column or 0, size_of(example, name, axes[1]), notes)
    return replace(selection, row=row, column=column)


def _resolve_module(selection: Selection, example: Example, notes: list[str]) -> Selection:
    model: Any = example.model
    modules = dict(model.named_modules(remove_duplicate=False))
    if selection.part and selection.part not in dict(model.named_children()):
        notes.append(f"This model has no part {selection.part[:40]!r}; this is the whole model.")
        return replace(selection.at_model(), head=None)
    if not selection.part:
        if selection.layer is not None or selection.sublayer:
            parts = [name for name, child in model.named_children() if hasattr(child, "layers")]
            notes.append(f"Name a part: {' or '.join(parts)}. This is the whole model.")
            selection = replace(selection, layer=None, sublayer="")
        return selection
    layers = getattr(modules.get(selection.part), "layers", None)
    if selection.layer is not None:
        if layers is None:
            notes.append("This part has no layers.")
            return selection.at_module(selection.part)
        number = _nearest_index("layer", selection.layer, len(layers), notes)
        selection = replace(selection, layer=number)
    name = selection.sublayer
    if name and ("." in name or name == "layers" or selection.path not in modules):
        nearest = "part" if selection.layer is None else "layer"
        notes.append(f"There is no sub-layer {name[:40]!r} here; this is the {nearest}.")
        return selection.at_module(selection.part, selection.layer)
    return selection


def _resolve_head(selection: Selection, example: Example, notes: list[str]) -> Selection:
    if selection.head is None:
        return selection
    counts = [head_count(example, name) for name in example.trace if name.startswith(f"{selection.path}.")]
    count = max(counts, default=0) if selection.sublayer or selection.stage else 0
    if not count:
        return replace(selection, head=None)
    return replace(selection, head=_nearest_index("head", selection.head, count, notes))


def _resolve_step(selection: Selection, example: Example, notes: list[str]) -> Selection:
    count = len(steps_of(example))
    step = default_step(example) if selection.step is None else selection.step
    return replace(selection, step=_nearest_index("step", step, count, notes))


def steps_of(example: Example) -> tuple[Label, ...]:
    """Tokens of the timeline: those that the decoder predicts; those that a model of one text reads."""
    if example.translated:
        return example.attention_sides("decoder", "cross_attention")[0].labels
    return example.sides[0].labels


def default_step(example: Example) -> int:
    """The first predicted position of a model of one text; of a translation the first word; of a series the last
    patch, which is nearest to the forecast."""
    if example.task == "forecasting":
        return len(example.sides[0].tokens) - 1
    return example.positions[0] if example.positions else 0


def _nearest_index(axis: str, value: int, count: int, notes: list[str]) -> int:
    if 0 <= value < count:
        return value
    notes.append(f"{axis} {value:,} is outside 0 to {count - 1:,}; this is {axis} {min(value, count - 1):,}.")
    return min(value, count - 1)


def plain_name(name: str) -> str:
    """``decoder.layers.1.cross_attention.weights`` → ``decoder layer 1, cross attention, weights``."""
    text = re.sub(r"\.layers\.(\d+)", r" layer \1", name)
    return text.replace(".", ", ").replace("_", " ")
