"""The chain of tensors of a module: what enters, each step of the computation, and what leaves, as cards."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.errors import ConfigError
from glassformer.explain.example import Example
from glassformer.explain.formula.dataflow import input_of, keys_of
from glassformer.explain.formula.formula import explain
from glassformer.explain.formula.table import find_tap
from glassformer.web.explorer.interventions import is_replaced
from glassformer.web.explorer.panels.wording import TENSORS, TensorText, module_summary, module_title, tensor_text
from glassformer.web.explorer.picture import data_address
from glassformer.web.explorer.places import (
    grid_axes,
    head_count,
    head_in,
    kind_of,
    select,
    size_of,
    split_name,
)
from glassformer.web.explorer.selection import Selection

SAMPLE = 9
"""Numbers of a tensor that a card checks, spread over it."""
LARGEST_PICTURE = 256
"""Columns of a picture; a vocabulary has more and is left out."""
ORDER = ("q", "k", "v", "rotated_q", "rotated_k")
BEGINNINGS = ("q", "k", "v", "rotated_q", "rotated_k", "mask", "encoding", "segment", "mean", "one_hot")
"""Tensors that are not computed from the one before them in the chain."""
SUBLAYERS = ("self_attention", "cross_attention", "feed_forward")


@dataclass(frozen=True)
class TensorCard:
    """``check`` is ``passed``, ``failed``, ``replaced`` by an intervention, or empty for a tensor without a formula."""

    text: TensorText
    name: str
    shape: str
    picture: str
    address: str
    check: str
    checked: str
    """Size of the sample: ``9 of 640 numbers checked``."""
    wide: bool
    follows: bool
    """True if it is computed from the card before it."""


@dataclass(frozen=True)
class Chain:
    title: str
    summary: str
    address: str
    cards: tuple[TensorCard, ...]


def chains_of(example: Example, selection: Selection) -> list[Chain]:
    """The chains that a selection shows: of a sub-layer its own, of a layer one for each sub-layer."""
    if selection.sublayer:
        return [chain_of(example, selection)]
    module: Any = example.model.get_submodule(selection.path)
    if selection.layer is not None:
        order = [name for name in SUBLAYERS if getattr(module, name, None) is not None]
        if not order:  # a layer of a recurrent model
            return [chain_of(example, selection.at_module(selection.part))]
        parts = [part for name in order for part in (name, f"{name}_norm")]
        if getattr(getattr(module, f"{order[0]}_norm", None), "pre", False):
            parts = [part for name in order for part in (f"{name}_norm", name)]
        return [chain_of(example, replace(selection, sublayer=part)) for part in parts]
    layers = getattr(module, "layers", None)
    own = [chain_of(example, selection)]
    if layers is None or not hasattr(layers[0], "feed_forward_norm"):
        return own
    return [_layers_chain(example, selection, len(layers)), *(chain for chain in own if chain.cards)]


def chain_of(example: Example, selection: Selection) -> Chain:
    """Input and tensors of one module; of an attention without a chosen head those of head 0."""
    names = [*_inputs(example, selection), *_own(example, selection)]
    cards = tuple(_card(example, selection, name) for name in dict.fromkeys(names))
    pre = bool(getattr(example.model.get_submodule(selection.path), "pre", False))
    title = module_title(selection.part, selection.layer, selection.sublayer, pre)
    return Chain(title, module_summary(selection.part, selection.sublayer, pre), selection.address, cards)


def _own(example: Example, selection: Selection) -> list[str]:
    """Names of the tensors of the module, in the order in which they were computed."""
    found = []
    for name in example.trace:
        part, layer, sublayer, stage = split_name(example.model, name)
        if (part, layer, sublayer) == (selection.part, selection.layer, selection.sublayer) and stage:
            found.append(name)
    return sorted(found, key=_order)


def _order(name: str) -> int:
    """Queries, keys, values; then the others as computed; last probabilities, which are noted before their logits."""
    tap = name.rpartition(".")[2]
    return ORDER.index(tap) - len(ORDER) if tap in ORDER else int(tap.endswith("probabilities"))


def _inputs(example: Example, selection: Selection) -> list[str]:
    if selection.layer is None or selection.sublayer not in SUBLAYERS:
        return []
    path, model = selection.path, example.model
    found = [input_of(model, path)]
    if selection.sublayer == "cross_attention":
        found.append(keys_of(model, path))
    return [name for name in found if name in example.trace]


def _layers_chain(example: Example, selection: Selection, count: int) -> Chain:
    """The residual stream after each layer."""
    cards = []
    for layer in range(count):
        path = f"{selection.part}.layers.{layer}.feed_forward_norm"
        pre = example.model.get_submodule(path).pre
        card = _card(example, selection, f"{path}.{'sum' if pre else 'normed'}")
        text = TensorText(f"layer {layer}", "residual stream after it")
        address = selection.at_module(selection.part, layer).address
        cards.append(replace(card, text=text, address=address))
    title = module_title(selection.part, None, "")
    summary = f"{count} layers, one above the other; each reads the stream of vectors and adds to it."
    return Chain(title, summary, selection.address, tuple(cards))


def _card(example: Example, selection: Selection, name: str) -> TensorCard:
    own = name.startswith(f"{selection.path}.")
    part, _, sublayer, stage = split_name(example.model, name)
    path = ".".join(filter(None, (part, sublayer)))
    module = example.model.get_submodule(selection.path)
    text = tensor_text(stage, path, module) if own else _input_text(name)
    values = values_of(example, name, selection.head or 0)
    sizes = " × ".join(f"{size_of(example, name, axis):,}" for axis in grid_axes(example, name))
    wide = values.shape[1] > LARGEST_PICTURE
    picture = "" if wide else data_address(values, kind_of(name))
    head = selection.head or 0 if head_count(example, name) else None
    address = replace(select(selection, example, name), head=head).address
    if is_replaced(selection.interventions, name, selection.head):
        check, checked = "replaced", ""
    else:
        check, checked = _check(example, name, selection.head or 0)
    follows = own and stage.rpartition(".")[2] not in BEGINNINGS
    return TensorCard(text, name, sizes, picture, address, check, checked, wide, follows)


def _input_text(name: str) -> TensorText:
    return TENSORS["memory"] if name == "memory" else TensorText("x", "input")


def values_of(example: Example, name: str, head: int) -> NDArray[np.float64]:
    """The rows and columns of a tensor, of one head; a vector is one column."""
    axes, part = example.trace.axes(name), example.trace[name]
    chosen = grid_axes(example, name)
    for dim in reversed(range(len(axes))):
        if axes[dim] not in chosen:
            part = part.select(dim, head_in(example, name, head) if axes[dim] == "head" else 0)
    values: NDArray[np.float64] = part.double().cpu().numpy()
    return values[:, None] if values.ndim == 1 else values


def _check(example: Example, name: str, head: int) -> tuple[str, str]:
    """Check a few numbers of a tensor against their formula: the result, and how many were checked."""
    tap = find_tap(example.model, name)
    if tap is None or tap.derive is None:
        return "", ""
    axes = grid_axes(example, name)
    sizes = [size_of(example, name, axis) for axis in axes]
    sample = dict.fromkeys(
        tuple((number * (7 + 4 * place) + place) % size for place, size in enumerate(sizes)) for number in range(SAMPLE)
    )
    checked = f"{len(sample):,} of {math.prod(sizes):,} numbers checked"
    for chosen in sample:
        index = dict(zip(axes, chosen, strict=True))
        if head_count(example, name):
            index["head"] = head_in(example, name, head)
        try:
            if not explain(example.trace, name, **index).check.passed:
                return "failed", checked
        except ConfigError:
            return "", ""
    return "passed", checked
