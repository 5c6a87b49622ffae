"""One head over the course of a training: what it attends to at each checkpoint, and how well it aligns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassformer.alignment.links import Links
from glassformer.explain.analysis.learning import READINGS, HeadSnapshot, best_head, best_reading
from glassformer.explain.example import Example
from glassformer.text.decimals import aligned, decimal
from glassformer.web.explorer.panels.head_picker import PickerRow, picker_rows
from glassformer.web.explorer.picture import data_address
from glassformer.web.explorer.selection import Selection

WIDTH, HEIGHT, INSET = 300, 120, 8
"""Pixels of a chart, and of its margin."""


@dataclass(frozen=True)
class TrainingPoint:
    """A checkpoint: its label, its address, and its attention, or a sentence that says why there is none."""

    label: str
    address: str
    current: bool
    snapshot: HeadSnapshot | None
    problem: str


@dataclass(frozen=True)
class TrainingTile:
    label: str
    address: str
    current: bool
    picture: str
    text: str
    problem: str
    values: NDArray[np.float64] | None = None
    """Weights of the picture."""


@dataclass(frozen=True)
class TrainingChart:
    """A measure over the checkpoints; ``dots`` are at (x, y) with the checkpoint's label and value."""

    title: str
    line: str
    dots: tuple[tuple[float, float, str], ...]
    now: float | None
    low: str
    high: str
    first: str
    last: str
    summary: str


@dataclass(frozen=True)
class TrainingRow:
    label: str
    values: tuple[str, ...]
    problem: str
    numbers: tuple[float | None, ...] = ()
    """The values in full; None where a checkpoint has none."""


@dataclass(frozen=True)
class TrainingView:
    title: str
    summary: str
    axes: str
    heads: tuple[PickerRow, ...]
    tiles: tuple[TrainingTile, ...]
    charts: tuple[TrainingChart, ...]
    columns: tuple[str, ...]
    rows: tuple[TrainingRow, ...]
    reading: str
    done: int
    missing: int
    skipped: int
    address: str
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Name and tokens of the queries and of the keys."""


@dataclass(frozen=True)
class _Measure:
    title: str
    digits: int
    of: Callable[[HeadSnapshot], float | None]
    highest: float | None = None


def training_of(
    example: Example,
    selection: Selection,
    path: str,
    points: Sequence[TrainingPoint],
    gold: Links | None,
    counts: tuple[int, int],
    text: str,
) -> TrainingView:
    """The panel of the points that are known. ``counts``: others that are missing still, and that are skipped."""
    missing, skipped = counts
    queries, keys = example.attention_sides(path.split(".")[0], path.rpartition(".")[2])
    known = [one.snapshot for one in points if one.snapshot is not None]
    head = _head(example, selection, path, known, gold)
    measures, reading = _measures(known, head, gold)
    largest = max((float(one.weights[head].max()) for one in known if head < len(one.weights)), default=1.0) or 1.0
    place = f"{path.replace('.layers.', ' layer ').replace('.', ' ').replace('_', '-')}, head {head}"
    return TrainingView(
        place,
        "" if missing else _summary(points, head, measures[0]),
        f"rows: {queries.name} (query) · columns: {keys.name} (key) · colors from 0 to {decimal(largest)}",
        tuple(picker_rows(example, selection, (path, head), {})),
        tuple(_tile(one, (head, largest), measures[0]) for one in points),
        tuple(_chart(points, head, one) for one in measures),
        tuple(one.title for one in measures),
        tuple(
            TrainingRow(
                one.label,
                tuple(_text(one, head, measure) for measure in measures),
                one.problem,
                tuple(_value(one, head, measure) for measure in measures),
            )
            for one in points
            if one.snapshot is not None or one.problem
        ),
        f"{text} {reading}".strip(),
        len(points) - missing,
        missing,
        skipped,
        selection.address,
        tuple((f"{side.name} ({role})", tuple(side.tokens)) for side, role in ((queries, "query"), (keys, "key"))),
    )


def _head(example: Example, selection: Selection, path: str, known: Sequence[HeadSnapshot], gold: Links | None) -> int:
    """The head of the selection, else the one that aligns best."""
    count = len(example.trace[f"{path}.weights"][0])
    if selection.head is not None and selection.path == path:
        return min(selection.head, count - 1)
    return min(best_head(known, gold), count - 1) if known else 0


def _measures(known: Sequence[HeadSnapshot], head: int, gold: Links | None) -> tuple[list[_Measure], str]:
    """Measures of the charts, and a sentence on the alignment that they are about."""
    entropy = _Measure("entropy of a row, nats", 2, lambda one: float(one.entropy[head]))
    loss = _Measure("loss of this text, nats a token", 2, lambda one: one.loss)
    last = known[-1] if known else None
    if last is not None and last.loss is None:
        return [entropy], ""  # an image or a series has no loss of a text
    if last is None or last.words is None or head >= len(last.weights):
        return [entropy, loss], ""
    reading = best_reading(last, gold, head) if gold else 0
    links = gold or last.links(head, reading)
    weight = _Measure("weight on the aligned word", 2, lambda one: _words(one, links, head, reading, False), 1.0)
    which = "the alignment that comes with the text" if gold else "the words that the last checkpoint links"
    where = "at the steps that read a word" if reading else "at the steps that predict a word"
    text = f"Aligned words are {which}; attention is read {where} ({READINGS[reading]})."
    if not gold:
        return [weight, entropy, loss], text
    error = _Measure("alignment error rate", 2, lambda one: _words(one, links, head, reading, True), 1.0)
    return [weight, error, entropy, loss], text


def _words(one: HeadSnapshot, links: Links, head: int, reading: int, error: bool) -> float | None:
    """Weight on the links, or their error rate; None of a checkpoint that splits the text into other words."""
    if one.words is None or head >= one.words.shape[1]:
        return None
    targets, sources = one.words.shape[2:]
    if any(source >= sources or target >= targets for source, target in links):
        return None
    return one.error_rate(links, head, reading) if error else one.on(links, head, reading)


def _value(point: TrainingPoint, head: int, measure: _Measure) -> float | None:
    if point.snapshot is None or head >= len(point.snapshot.weights):
        return None
    return measure.of(point.snapshot)


def _text(point: TrainingPoint, head: int, measure: _Measure) -> str:
    value = _value(point, head, measure)
    return "" if value is None else aligned(value, measure.digits)


def _tile(point: TrainingPoint, choice: tuple[int, float], measure: _Measure) -> TrainingTile:
    """The picture of a head; ``choice`` is its number, and the weight of the brightest color, one for all pictures."""
    one, (head, largest) = point.snapshot, choice
    if one is None or head >= len(one.weights):
        problem = point.problem or ("has no such head" if one else "")
        return TrainingTile(point.label, point.address, point.current, "", "", problem)
    text, values = _text(point, head, measure), one.weights[head]
    picture = data_address(values / largest, "weights")
    return TrainingTile(point.label, point.address, point.current, picture, text, "", values)


def _chart(points: Sequence[TrainingPoint], head: int, measure: _Measure) -> TrainingChart:
    values = [_value(point, head, measure) for point in points]
    numbers = [value for value in values if value is not None]
    high = measure.highest or max(numbers, default=1.0) or 1.0
    apart = (WIDTH - 2 * INSET) / max(1, len(points) - 1)
    dots = [
        (round(INSET + place * apart, 1), round(HEIGHT - INSET - (HEIGHT - 2 * INSET) * value / high, 1), value, point)
        for place, (value, point) in enumerate(zip(values, points, strict=True))
        if value is not None
    ]
    return TrainingChart(
        measure.title,
        "M" + "L".join(f"{x:g} {y:g}" for x, y, _, _ in dots) if dots else "",
        tuple((x, y, f"{point.label}: {aligned(value, measure.digits)}") for x, y, value, point in dots),
        next((x for x, _, _, point in dots if point.current), None),
        aligned(0, 0),
        aligned(high, measure.digits if high < 10 else 0),
        points[0].label if points else "",
        points[-1].label if points else "",
        _course(measure, dots),
    )


def _course(measure: _Measure, dots: Sequence[tuple[float, float, float, TrainingPoint]]) -> str:
    if not dots:
        return measure.title
    first, last = dots[0], dots[-1]
    texts = [f"{aligned(one[2], measure.digits)} at {one[3].label}" for one in (first, last)]
    return f"{measure.title}: from {texts[0]} to {texts[1]}"


def _summary(points: Sequence[TrainingPoint], head: int, measure: _Measure) -> str:
    """The course of the first measure, and when half of its way was done."""
    found = [(point.label, value) for point in points if (value := _value(point, head, measure)) is not None]
    if len(found) < 2:
        return "A course needs two checkpoints of one run; this one has fewer that can be read."
    (first, before), (last, after) = found[0], found[-1]
    half = next(label for label, value in found if abs(value - before) >= abs(after - before) / 2)
    values = [aligned(value, measure.digits) for value in (before, after)]
    text = f"{measure.title[:1].upper()}{measure.title[1:]}: {values[0]} at {first}, {values[1]} at {last}"
    changed = abs(after - before) >= 0.05 * max(abs(before), abs(after), 1e-9)
    return f"{text}; half of the way by {half}." if changed else f"{text}."
