"""One position in a feed-forward or normalization sub-layer: its strongest neurons, or its mean, deviation and gain."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from glassformer.explain.example import Example
from glassformer.explain.formula.dataflow import input_of
from glassformer.explain.matrix import Label
from glassformer.text.decimals import aligned, decimal
from glassformer.web.explorer.places import labels_of, select
from glassformer.web.explorer.selection import Selection

LISTED = 8
"""Neurons that are listed."""
MOST_TOKENS = 32
"""Tokens that can be chosen; those around the chosen one if there are more."""


@dataclass(frozen=True)
class Fact:
    """A number with its meaning; ``address`` is empty for what was learned and not computed."""

    meaning: str
    text: str
    address: str


@dataclass(frozen=True)
class Neuron:
    """``driver`` is the input with the largest term of its sum."""

    number: int
    value: float
    text: str
    bar: int
    address: str
    before: str
    before_address: str
    driver: str
    driver_address: str


@dataclass(frozen=True)
class PositionFacts:
    title: str
    tokens: tuple[tuple[Label, str, bool], ...]
    summary: str
    neurons: tuple[Neuron, ...]
    facts: tuple[Fact, ...]


def position_facts_of(example: Example, selection: Selection) -> PositionFacts | None:
    """The panel of a feed-forward or of a normalization sub-layer; None for another view."""
    path = selection.path
    if not selection.sublayer or selection.stage:
        return None
    inside = f"{path}.{'product' if f'{path}.product' in example.trace else 'activated'}"
    name = inside if inside in example.trace else f"{path}.normed"
    if name not in example.trace or "position" not in example.trace.axes(name):
        return None
    labels = labels_of(example, name, "position")[1]
    chosen = selection.step or 0 if selection.part != "encoder" or not example.translated else 0
    position = min(chosen if selection.position is None else selection.position, len(labels) - 1)
    first = max(0, min(position - MOST_TOKENS // 2, len(labels) - MOST_TOKENS))
    places = range(first, min(len(labels), first + MOST_TOKENS))
    tokens = tuple((labels[at], replace(selection, position=at).address, at == position) for at in places)
    if name == inside:
        summary, neurons = _neurons(example, selection, name, position)
        return PositionFacts(f"Neurons at {labels[position].plain}", tokens, summary, neurons, ())
    return PositionFacts(
        f"Normalization at {labels[position].plain}", tokens, "", (), _norm(example, selection, position)
    )


def _row(example: Example, name: str, position: int) -> Tensor:
    index = {"batch": 0} if "batch" in example.trace.axes(name) else {}
    return example.trace.at(name, **index, position=position).double().cpu()


def _address(example: Example, selection: Selection, name: str, position: int, column: int) -> str:
    other = next(axis for axis in example.trace.axes(name) if axis not in ("batch", "position"))
    return select(selection, example, name, {"position": position, other: column}).address


def _neurons(example: Example, selection: Selection, name: str, position: int) -> tuple[str, tuple[Neuron, ...]]:
    """The neurons of largest activation, each with its sum before the activation and the input that drives it."""
    path = selection.path
    module: Any = example.model.get_submodule(path)
    values, before, source = _row(example, name, position), f"{path}.inner", input_of(example.model, path)
    order = values.abs().argsort(descending=True, stable=True)[:LISTED].tolist()
    largest = float(values.abs().max()) or 1.0
    found = []
    for number in order:
        terms = _row(example, source, position) * module.inner.weight[number].detach().double().cpu()
        driver = int(terms.abs().argmax())
        value = float(values[number])
        found.append(
            Neuron(
                number,
                value,
                aligned(value, 3),
                round(100 * value / largest),
                _address(example, selection, name, position, number),
                aligned(float(_row(example, before, position)[number]), 3),
                _address(example, selection, before, position, number),
                f"dimension {driver}: {aligned(float(terms[driver]), 3)}",
                _address(example, selection, source, position, driver),
            )
        )
    active = int((values > 0).sum())
    return f"{active:,} of {len(values):,} neurons are above 0; these are the largest in size.", tuple(found)


def _norm(example: Example, selection: Selection, position: int) -> tuple[Fact, ...]:
    """Statistics of the position, which lead to their formulas, and the range of what was learned."""
    meanings = {"mean": "mean μ", "deviation": "deviation σ", "root_mean_square": "root mean square"}
    facts = []
    for tap, meaning in meanings.items():
        name = f"{selection.path}.norm.{tap}"
        if name in example.trace:
            value = float(_row(example, name, position))
            facts.append(
                Fact(meaning, decimal(value), select(selection, example, name, {"position": position}).address)
            )
    norm: Any = example.model.get_submodule(selection.path).norm
    for parameter, meaning in (("weight", "gain γ"), ("bias", "bias β")):
        values = getattr(norm, parameter, None)
        if isinstance(values, torch.Tensor):
            low, high = (decimal(float(one)) for one in values.detach().aminmax())
            facts.append(Fact(f"{meaning}, learned, the same at each position", f"{low} to {high}", ""))
    return tuple(facts)
