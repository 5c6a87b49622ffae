"""One dimension of the positional encoding: its sine, its trained numbers, or the angle of a rotation (section 3.5)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from glassformer.explain.example import Example
from glassformer.explain.formula.dataflow import positions_of
from glassformer.layers.position import Learned, Sinusoidal, sinusoids
from glassformer.text.decimals import aligned, decimal, setting
from glassformer.web.explorer.places import select
from glassformer.web.explorer.selection import Selection

WIDTH, HEIGHT, LEFT, RIGHT, MIDDLE = 640, 170, 34, 12, 78
"""Size of the drawing, its margins, and the height of 0, in pixels."""
AMPLITUDE = 58
"""Pixels from 0 to the largest number."""
SAMPLES = 480
"""Points of a curve that is defined between positions."""
SHORTEST, LONGEST = 24, 96
"""Positions along the drawing."""


@dataclass(frozen=True)
class CurvePoint:
    position: int
    x: float
    y: float
    text: str
    address: str
    current: bool


@dataclass(frozen=True)
class PositionCurve:
    """``kind`` is sinusoidal, learned, rotary or none. ``paths`` are curves, ``points`` the positions of the text."""

    kind: str
    title: str
    meaning: str
    formula: str
    paths: tuple[tuple[str, str], ...] = ()
    points: tuple[CurvePoint, ...] = ()
    others: tuple[tuple[float, float], ...] = ()
    """Trained numbers of positions behind the text."""
    marker: float = 0.0
    low: str = ""
    high: str = ""
    last: int = 0
    address: str = ""


def rows_of(example: Example, name: str) -> Tensor:
    """A tensor of an embedding, ``[position, d_model]``; an encoding is recorded without a batch."""
    tensor = example.trace[name]
    return (tensor[0] if "batch" in example.trace.axes(name) else tensor).double().cpu()


def curve_of(example: Example, place: Selection, stack: str, path: str) -> PositionCurve | None:
    """The encoding of the chosen dimension; None if the model knows no positions that can be drawn."""
    embedding: Any = example.model.get_submodule(path)
    length = example.trace[f"{path}.tokens"].size(1)
    name = f"{path}.encoding"
    if isinstance(embedding.position, Sinusoidal):
        return _sinusoidal(example, place, (name, embedding.position), length)
    if isinstance(embedding.position, Learned):
        return _learned(example, place, (name, embedding.position), length)
    if positions_of(example.model, stack) == "rotary":
        return _rotary(example, place, stack, length)
    return PositionCurve(
        "none", "No positions", "Nothing is added: a recurrent model reads one token after the other.", ""
    )


def _sinusoidal(example: Example, place: Selection, source: tuple[str, Sinusoidal], length: int) -> PositionCurve:
    name, module = source
    position, dimension = place.position or 0, place.dimension or 0
    last = _last(length)
    samples = torch.linspace(0, last, SAMPLES, dtype=torch.float64)
    values = sinusoids(samples, module.d_model)[:, dimension].tolist()
    pair = 2 * (dimension // 2)
    wave = "cos" if dimension % 2 else "sin"
    numbers = rows_of(example, name)[:, dimension].tolist()
    turn = 2 * math.pi * 10000.0 ** (pair / module.d_model)
    return PositionCurve(
        "sinusoidal",
        f"Dimension {dimension}: a {'cosine' if dimension % 2 else 'sine'} of the position",
        f"It repeats every {decimal(turn)} positions. Later dimensions are slower.",
        f"PE({position}, {dimension}) = {wave}({position} / 10000^({pair}/{module.d_model})) "
        f"= {decimal(numbers[position])}",
        (("wave", _path(samples.tolist(), values, last, 1.0)),),
        _points(place, numbers, last, 1.0),
        marker=_x(position, last),
        low="−1",
        high="1",
        last=last,
        address=select(place, example, name, {"position": position, "d_model": dimension}).address,
    )


def _learned(example: Example, place: Selection, source: tuple[str, Learned], length: int) -> PositionCurve:
    name, module = source
    position, dimension = place.position or 0, place.dimension or 0
    last = min(_last(length), module.n_positions - 1)
    numbers = module.weight[: last + 1, dimension].detach().double().cpu()
    largest = float(numbers.abs().max()) or 1.0
    used = rows_of(example, name)[:, dimension].tolist()
    return PositionCurve(
        "learned",
        f"Dimension {dimension}: a trained number for each of {module.n_positions:,} positions",
        "No curve: training chose each number by itself, and there is none for later positions.",
        f"P({position}, {dimension}) = {decimal(used[position])}",
        (),
        _points(place, used, last, largest),
        tuple((_x(at, last), _y(float(numbers[at]), largest)) for at in range(length, last + 1)),
        marker=_x(position, last),
        low=decimal(-largest),
        high=decimal(largest),
        last=last,
        address=select(place, example, name, {"position": position, "d_model": dimension}).address,
    )


def _rotary(example: Example, place: Selection, stack: str, length: int) -> PositionCurve:
    """The cosine and sine of the angle by which the pair of a dimension is turned in each self-attention."""
    rotary: Any = example.model.get_submodule(stack).layers[0].self_attention.rotary
    position, column = place.position or 0, (place.dimension or 0) % rotary.d_head
    pair, last = column // 2, _last(length)
    rate = float(rotary.angles(2, torch.device("cpu"))[1, pair])
    samples = torch.linspace(0, last, SAMPLES, dtype=torch.float64)
    angles = samples * rate
    name = f"{stack}.layers.0.self_attention.rotated_q"
    link = (
        select(place, example, name, {"head": 0, "query": position, "d_head": column})
        if name in example.trace
        else None
    )
    return PositionCurve(
        "rotary",
        f"Dimensions {2 * pair} and {2 * pair + 1} of each head: turned by an angle",
        "Nothing is added to the embedding. In each self-attention, pairs of dimensions of queries and keys are "
        "turned; their product then depends on the distance alone (Su et al. 2021).",
        f"angle = {position} · {setting(float(rotary.theta))}^(−{2 * pair}/{rotary.d_head}) "
        f"= {decimal(position * rate)} rad",
        (
            ("wave", _path(samples.tolist(), angles.cos().tolist(), last, 1.0)),
            ("second", _path(samples.tolist(), angles.sin().tolist(), last, 1.0)),
        ),
        _points(place, [math.cos(at * rate) for at in range(length)], last, 1.0),
        marker=_x(position, last),
        low="−1",
        high="1",
        last=last,
        address=link.address if link else "",
    )


def _last(length: int) -> int:
    """The last position that is drawn."""
    return min(max(length, SHORTEST), LONGEST) - 1


def _x(position: float, last: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * position / max(last, 1)


def _y(value: float, largest: float) -> float:
    return MIDDLE - AMPLITUDE * value / largest


def _path(positions: Sequence[float], values: Sequence[float], last: int, largest: float) -> str:
    points = (f"{_x(at, last):.1f} {_y(value, largest):.1f}" for at, value in zip(positions, values, strict=True))
    return f"M{'L'.join(points)}"


def _points(place: Selection, values: Sequence[float], last: int, largest: float) -> tuple[CurvePoint, ...]:
    """The positions of the text; each is a link that chooses it."""
    return tuple(
        CurvePoint(
            at,
            _x(at, last),
            _y(value, largest),
            aligned(value, 4),
            replace(place, position=at).address,
            at == place.position,
        )
        for at, value in enumerate(values[: last + 1])
    )
