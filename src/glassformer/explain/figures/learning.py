"""Course of one head over a training: its attention by words at some checkpoints, above the curve of all, as SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glassformer.alignment.links import Links
from glassformer.errors import ConfigError
from glassformer.explain.analysis.learning import HeadSnapshot, snapshot
from glassformer.explain.example import Example, ExampleInput, examine_run
from glassformer.explain.figures.attention import attention_views
from glassformer.explain.figures.svg import shade
from glassformer.storage.run_folder import RunFolder, resolve, step_of
from glassformer.text.decimals import aligned

PANELS = 6
"""Checkpoints that are drawn as matrices."""
WIDTH, LEFT, GAP, CURVE = 1000, 96, 18, 150
"""Width of the picture, of the labels at its left, between two matrices, and height of the curve, in pixels."""
CHARACTER, LONGEST_WORD = 7.3, 14
LARGEST_CELL = 26

_STYLE = (
    ".paper{fill:#fff}.ink{fill:#1c2230}.soft{fill:#565e70}.rule{stroke:#d9d6cd}.lead{stroke:#b9bdc7}"
    ".line{stroke:#1b4f91}.area{fill:#1b4f91;fill-opacity:.1}.dot{fill:#fff;stroke:#1b4f91}.full{fill:#1b4f91}"
    "@media (prefers-color-scheme:dark){.paper{fill:#14161b}.ink{fill:#e8e9ec}.soft{fill:#a9b0bf}.rule{stroke:#323845}"
    ".lead{stroke:#565e70}.line{stroke:#8fbcf5}.area{fill:#8fbcf5}.dot{fill:#14161b;stroke:#8fbcf5}"
    ".full{fill:#8fbcf5}}"
)


@dataclass(frozen=True)
class LearningCourse:
    """Attention by words of one head, ``matrices[i]`` at ``steps[i]``, and its weight on the linked words."""

    title: str
    target: tuple[str, ...]
    source: tuple[str, ...]
    steps: tuple[int, ...]
    matrices: tuple[NDArray[np.float64], ...]
    weights: tuple[float, ...]

    @property
    def summary(self) -> str:
        """The curve in words."""
        first, last = aligned(self.weights[0], 2), aligned(self.weights[-1], 2)
        return (
            f"Weight on the word that the last checkpoint links, mean over the target words: {first} at step "
            f"{self.steps[0]:,}, {last} at step {self.steps[-1]:,}."
        )


def learning_course(run: str | Path, example: ExampleInput, view: str, head: int, shifted: bool) -> LearningCourse:
    """The course of a head over the checkpoints of ``run``; all of them read the text and the target of the best."""
    checkpoints = RunFolder.open(run).checkpoints()
    if len(checkpoints) < 2:
        raise ConfigError(
            f"{run}: has {len(checkpoints)} checkpoint; train with a small train.save_every and a large "
            "train.keep_checkpoints to have several"
        )
    last = examine_run(resolve(run), example)
    path = attention_views(last).get(view, "")
    if not last.translated or not path.endswith("cross_attention"):
        raise ConfigError(
            f"{view}: a course is drawn of the cross-attention of a translator, decoder.0.cross_attention"
        )
    read = ExampleInput(example.text, last.target, example.keep, example.device)
    found = [snapshot(examine_run(one, read), path) for one in checkpoints]
    return _course(last, found, [step_of(one) for one in checkpoints], (view, head, int(shifted)))


def _course(
    last: Example, found: Sequence[HeadSnapshot], steps: Sequence[int], place: tuple[str, int, int]
) -> LearningCourse:
    view, head, reading = place
    end = found[-1]
    if end.words is None:
        raise ConfigError(f"{last.source!r}: has no words to align; give a longer text")
    if not 0 <= head < len(end.weights):
        raise ConfigError(
            f"head={head} is not among the {len(end.weights)} heads; choose from 0 to {len(end.weights) - 1}"
        )
    links: Links = end.links(head, reading)
    if any(one.words is None or one.words.shape != end.words.shape for one in found):
        raise ConfigError("the checkpoints have different numbers of heads or words; draw those of one model")
    where = "steps that read a word" if reading else "steps that predict a word"
    return LearningCourse(
        f"{view.replace('.', ' layer ', 1).replace('.', ' ').replace('_', '-')}, head {head}, at the {where}",
        tuple(label.visible for label in last.sides[1].words),
        tuple(label.visible for label in last.sides[0].words),
        tuple(steps),
        tuple(one.words[reading, head] for one in found if one.words is not None),
        tuple(one.on(links, head, reading) for one in found),
    )


def learning_svg(course: LearningCourse) -> str:
    """A picture without references to other files, legible on light and on dark."""
    chosen = _panels(course)
    width = (WIDTH - LEFT - 24 - GAP * (len(chosen) - 1)) / len(chosen)
    cell = min(width / len(course.source), LARGEST_CELL)
    top, tall = 96, cell * len(course.target)
    words = 14 + CHARACTER * max(len(_short(word)) for word in course.source) * 0.9
    curve = top + tall + words + 34
    height = curve + CURVE + 44
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="glassformer-learning" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}" style="max-width:100%;height:auto" '
        'font-family="system-ui, sans-serif" font-size="13" role="img">',
        f"<title>{escape(course.title)}</title><desc>{escape(course.summary)}</desc><style>{_STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height:.0f}" rx="12"/>',
        f'<text class="ink" x="24" y="36" font-size="19" font-weight="650">{escape(" ".join(course.source))} → '
        f"{escape(' '.join(course.target))}</text>",
        f'<text class="soft" x="24" y="58">{escape(course.title)}; weights from 0, dark, to 1, yellow</text>',
    ]
    places = _steps(course)
    for number, index in enumerate(chosen):
        left = LEFT + number * (width + GAP) + (width - cell * len(course.source)) / 2
        parts += _matrix(course, index, (left, top), cell, number == 0)
        parts += _lead((left + cell * len(course.source) / 2, top + tall + words), (places[index], curve))
    parts += _curve(course, places, curve, chosen)
    return "\n".join([*parts, "</svg>\n"])


def _panels(course: LearningCourse) -> list[int]:
    """First and last checkpoint, and those at which the weight is nearest to equal parts of its way between."""
    count = min(PANELS, len(course.steps))
    rise = [max(course.weights[: place + 1]) for place in range(len(course.weights))]
    chosen = {0, len(rise) - 1}
    for part in range(1, count - 1):
        goal = rise[0] + (rise[-1] - rise[0]) * part / (count - 1)
        rest = [place for place in range(len(rise)) if place not in chosen]
        chosen.add(min(rest, key=lambda place: abs(rise[place] - goal)))
    return sorted(chosen)


def _steps(course: LearningCourse) -> list[float]:
    """Horizontal place of each checkpoint, by the logarithm of its step."""
    logs = [math.log(max(1, step)) for step in course.steps]
    wide = (logs[-1] - logs[0]) or 1.0
    return [LEFT + (WIDTH - LEFT - 40) * (log - logs[0]) / wide for log in logs]


def _matrix(course: LearningCourse, index: int, corner: tuple[float, float], cell: float, named: bool) -> list[str]:
    x, y = corner
    values = course.matrices[index]
    middle = x + cell * len(course.source) / 2
    parts = [
        f'<text class="ink" x="{middle:.1f}" y="{y - 10:.1f}" text-anchor="middle" font-weight="600">'
        f"step {course.steps[index]:,}</text>",
        '<g shape-rendering="crispEdges">',
    ]
    for (i, j), value in np.ndenumerate(values):
        parts.append(
            f'<rect x="{x + cell * j:.2f}" y="{y + cell * i:.2f}" width="{cell:.2f}" height="{cell:.2f}" '
            f'fill="{shade(float(value))}"><title>{escape(course.target[i])} → {escape(course.source[j])}: '
            f"{aligned(float(value), 2)}</title></rect>"
        )
    parts.append('</g><g class="soft" font-size="11.5">')
    for i, word in enumerate(course.target if named else ()):
        parts.append(
            f'<text class="ink" x="{x - 8:.1f}" y="{y + cell * (i + 0.5) + 4:.1f}" text-anchor="end">'
            f"{escape(_short(word))}</text>"
        )
    below = y + cell * len(course.target) + 8
    for j, word in enumerate(course.source):
        parts.append(
            f'<text transform="translate({x + cell * (j + 0.5) + 4:.1f} {below:.1f}) rotate(-90)" text-anchor="end">'
            f"{escape(_short(word))}</text>"
        )
    return [*parts, "</g>"]


def _lead(start: tuple[float, float], end: tuple[float, float]) -> list[str]:
    """A line from a matrix down to its place on the curve."""
    (x, y), (to, below) = start, end
    half = (y + below) / 2
    curve = f"M{x:.1f} {y:.1f}C{x:.1f} {half:.1f} {to:.1f} {half:.1f} {to:.1f} {below:.1f}"
    return [f'<path class="lead" fill="none" d="{curve}"/>']


def _curve(course: LearningCourse, places: Sequence[float], top: float, chosen: Sequence[int]) -> list[str]:
    heights = [top + CURVE * (1 - value) for value in course.weights]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(places, heights, strict=True))
    floor = top + CURVE
    parts = ['<g class="soft" font-size="11.5">']
    for value in (0.0, 0.5, 1.0):
        y = top + CURVE * (1 - value)
        parts.append(f'<path class="rule" d="M{LEFT - 12} {y:.1f}H{WIDTH - 24}"/>')
        parts.append(f'<text x="{LEFT - 18}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    parts += [
        f'<text transform="translate(26 {top + CURVE / 2:.1f}) rotate(-90)" text-anchor="middle">'
        "weight on the aligned word</text>",
        f'<text x="{WIDTH - 24}" y="{floor + 38:.1f}" text-anchor="end">training step, logarithmic</text></g>',
        f'<polygon class="area" points="{places[0]:.1f},{floor:.1f} {points} {places[-1]:.1f},{floor:.1f}"/>',
        f'<polyline class="line" fill="none" stroke-width="2.4" stroke-linejoin="round" points="{points}"/>',
    ]
    for index, (x, y) in enumerate(zip(places, heights, strict=True)):
        parts += _dot(course, index, (x, y), top, index in chosen)
    return parts


def _dot(course: LearningCourse, index: int, at: tuple[float, float], top: float, named: bool) -> list[str]:
    (x, y), value, step = at, aligned(course.weights[index], 2), f"{course.steps[index]:,}"
    kind, size = ("full", 5.5) if named else ("dot", 3.4)
    dot = f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{size}" stroke-width="1.8">'
    parts = [f"{dot}<title>step {step}: {value}</title></circle>"]
    if named:
        above = y - 12 if y > top + 24 else y + 22
        floor = top + CURVE + 18
        middle = f'x="{x:.1f}" text-anchor="middle"'
        parts.append(f'<text class="ink" {middle} y="{above:.1f}" font-weight="600">{value}</text>')
        parts.append(f'<text class="soft" {middle} y="{floor:.1f}" font-size="11.5">{step}</text>')
    return parts


def _short(word: str) -> str:
    return word if len(word) <= LONGEST_WORD else f"{word[: LONGEST_WORD - 1]}…"
