"""A series with its patches, the attention of one of them, and the forecast."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from glassformer.explain.example import Example
from glassformer.text.decimals import decimal
from glassformer.text.decimals import weight as weight_text
from glassformer.web.explorer.panels.sentence import attention_title, main_attention
from glassformer.web.explorer.selection import Selection

WIDTH, HEIGHT, BAND = 720, 230, 54
"""Size of the drawing of the curve, and height of the bars of weights below it, in pixels."""
LEFT, TOP = 58, 10


@dataclass(frozen=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True)
class WeightBar:
    """A patch: its steps, from the beginning of one to that of the next, and a bar as high as its weight."""

    number: int
    x: float
    width: float
    height: float
    steps: str
    weight: str
    address: str
    current: bool


@dataclass(frozen=True)
class CurveRow:
    step: int
    seen: str
    forecast: str
    truth: str


@dataclass(frozen=True)
class CurveView:
    """``seen``, ``forecast`` and ``truth`` are paths; ``truth`` is empty if the following steps are not known."""

    title: str
    address: str
    summary: str
    verdict: str
    variable: str
    seen: str
    forecast: str
    truth: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    end: float
    """x of the last step that the model sees."""
    bars: tuple[WeightBar, ...]
    scale: str
    rows: tuple[CurveRow, ...]


@dataclass(frozen=True)
class Curve:
    """Values in their own units."""

    seen: NDArray[np.float64]
    forecast: NDArray[np.float64]
    truth: NDArray[np.float64] | None


def curve_of(
    example: Example, selection: Selection, curve: Curve, path: str = "", head: int | None = None
) -> CurveView:
    """The curve, and the attention at ``path``, one head or the mean of all, of the patch at the selected step."""
    path = path or main_attention(example)
    every = example.trace[f"{path}.weights"][0].double().cpu().numpy()
    weights: NDArray[np.float64] = every.mean(0) if head is None else every[head]
    query = min(selection.step or 0, len(weights) - 1)
    title, address = attention_title(example, selection, path, head)
    labels = [label.text for label in example.sides[0].labels]
    best, places = int(weights[query].argmax()), _Places(curve)
    steps, end = len(curve.seen), len(curve.seen) + len(curve.forecast)
    last = float(curve.seen[-1])
    return CurveView(
        title,
        address,
        f"Steps {labels[query]} attend most to steps {labels[best]}: {weight_text(float(weights[query, best]))}.",
        _verdict(example.labels[0], curve),
        example.labels[0],
        places.path(0, curve.seen),
        places.path(steps - 1, [last, *curve.forecast]),
        "" if curve.truth is None else places.path(steps - 1, [last, *curve.truth]),
        tuple(Tick(places.x(step), str(step)) for step in (0, steps // 2, steps - 1, end - 1)),
        tuple(
            Tick(places.y(value), decimal(value)) for value in (places.low, (places.low + places.high) / 2, places.high)
        ),
        places.x(steps - 1),
        tuple(_bars(example, selection, weights[query], query, places)),
        f"from 0 to {weight_text(float(weights[query].max()))}",
        tuple(_rows(curve)),
    )


class _Places:
    """Positions of steps and values in the drawing."""

    def __init__(self, curve: Curve) -> None:
        parts = [curve.seen, curve.forecast, *([] if curve.truth is None else [curve.truth])]
        every = np.concatenate(parts)
        every = every[np.isfinite(every)]
        self.low, self.high = float(every.min()), float(every.max())
        self.count = len(curve.seen) + len(curve.forecast)

    def x(self, step: float) -> float:
        return round(LEFT + (WIDTH - LEFT - 8) * step / max(1, self.count - 1), 2)

    def y(self, value: float) -> float:
        part = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return round(TOP + (HEIGHT - 2 * TOP) * (1 - part), 2)

    def path(self, first: int, values: Sequence[float] | NDArray[np.float64]) -> str:
        """A line through the values; it is broken where one is not known."""
        parts, pen = [], "M"
        for step, value in enumerate(values, first):
            if not np.isfinite(value):
                pen = "M"
                continue
            parts.append(f"{pen}{self.x(step):g} {self.y(float(value)):g}")
            pen = "L"
        return "".join(parts)


def _bars(
    example: Example, selection: Selection, weights: NDArray[np.float64], query: int, places: _Places
) -> Iterator[WeightBar]:
    config, largest = example.model.config, float(weights.max()) or 1.0
    for number, value in enumerate(weights):
        start = number * config.patch_stride
        x, end = places.x(start), places.x(min(start + config.patch_stride, places.count - 1))
        yield WeightBar(
            number,
            x,
            max(1.0, round(end - x - 1, 2)),
            round(BAND * float(value) / largest, 2),
            example.sides[0].labels[number].text,
            weight_text(float(value)),
            replace(selection, step=number).address,
            number == query,
        )


def _verdict(variable: str, curve: Curve) -> str:
    sizes = f"{variable}: {len(curve.seen):,} steps are seen, {len(curve.forecast):,} are forecast"
    if curve.truth is None or not np.isfinite(curve.truth).any():
        return f"{sizes}."
    error = float(np.nanmean(np.abs(curve.forecast - curve.truth)))
    return f"{sizes}; the mean absolute error against what followed is {decimal(error)}."


def _rows(curve: Curve) -> Iterator[CurveRow]:
    for step, value in enumerate(curve.seen.tolist()):
        yield CurveRow(step, decimal(value), "", "")
    for step, value in enumerate(curve.forecast.tolist()):
        truth = "" if curve.truth is None else decimal(float(curve.truth[step]))
        yield CurveRow(len(curve.seen) + step, "", decimal(value), truth)
