"""Picture of a plan as SVG: time, memory and cost over the number of devices, all on logarithmic axes.

Legible without color, and on light and dark paper.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from glassformer.errors import ConfigError
from glassformer.planning.plan import TrainingPlan

WIDTH, HEIGHT = 340, 240
"""Size of the area of a panel in pixels, without its labels."""
LEFT, TOP, RIGHT, BOTTOM = 76, 86, 22, 54

_STYLE = (
    "@media (prefers-color-scheme: dark) { .glassformer-plan .paper { fill: #16181d } "
    ".glassformer-plan .ink { fill: #e9e9ea } .glassformer-plan .axis { stroke: #e9e9ea } "
    ".glassformer-plan .line { stroke: #fee838 } .glassformer-plan .dot { fill: #fee838 } }"
)
_DASHES = ("", "6 4", "2 3")


_Scale = Callable[[float], float]


@dataclass(frozen=True)
class _Series:
    """One line of a panel: a label and a value for each number of devices."""

    label: str
    values: tuple[float, ...]
    dots: bool = True


@dataclass(frozen=True)
class _Panel:
    """One diagram: title with unit, and its lines."""

    title: str
    series: tuple[_Series, ...]


def draw(plan: TrainingPlan, name: str, path: str | Path) -> None:
    """Write the picture of ``plan`` to ``path``, an ``.svg`` file."""
    path = Path(path)
    if path.suffix.lower() != ".svg":
        raise ConfigError(f"{path}: a plan is drawn as SVG; end the name in .svg")
    path.write_text(svg(plan, name), encoding="utf-8", newline="\n")


def svg(plan: TrainingPlan, name: str) -> str:
    """The picture: a panel each for time, memory and cost."""
    panels, devices = _panels(plan), [estimate.devices for estimate in plan.estimates]
    block = LEFT + WIDTH + RIGHT
    width, height = block * len(panels), TOP + HEIGHT + BOTTOM
    title = f"{name}: {plan.size.total / 1e6:,.1f} M parameters, {plan.steps:,} steps on {plan.device.name}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="glassformer-plan" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" style="max-width:100%;height:auto" '
        'font-family="ui-monospace, monospace" font-size="12" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<rect class="paper" width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text class="ink" x="22" y="26" font-size="14" font-weight="bold" fill="#16181d">{escape(title)}</text>',
    ]
    for index, panel in enumerate(panels):
        parts += _panel(panel, devices, index * block + LEFT)
    return "\n".join([*parts, "</svg>\n"])


def _panels(plan: TrainingPlan) -> list[_Panel]:
    estimates = plan.estimates
    hours = _Series("with failures", tuple(each.hours for each in estimates))
    work = hours.values[0] * estimates[0].devices
    ideal = _Series("linear speed-up", tuple(work / each.devices for each in estimates), False)
    total = _Series("peak", tuple(each.memory.total / 2**30 for each in estimates))
    room = _Series("memory of the device", (plan.device.memory * 1e9 / 2**30,) * len(estimates), False)
    cost = _Series("US dollars", tuple(each.cost for each in estimates))
    panels = [_Panel("time, hours", (hours, ideal)), _Panel("memory of a device, GiB", (total, room))]
    return [*panels, _Panel("cost, US dollars", (cost,))] if plan.device.price else panels


def _panel(panel: _Panel, devices: Sequence[int], left: float) -> list[str]:
    values = [value for series in panel.series for value in series.values if value > 0]
    low, high = _decades(min(values), max(values))
    first, last = math.log2(devices[0]), math.log2(devices[-1])
    span = last - first or 1.0

    def x(count: float) -> float:
        return left + WIDTH * ((math.log2(count) - first) / span if last > first else 0.5)

    def y(value: float) -> float:
        return TOP + HEIGHT * (1 - (math.log10(max(value, 10.0**low)) - low) / (high - low))

    parts = [_text(left, TOP - 34, panel.title, "start", bold=True)]
    parts += _axes(devices, (low, high), left, x, y)
    for index, series in enumerate(panel.series):
        points = [(x(count), y(value)) for count, value in zip(devices, series.values, strict=True)]
        if len(points) == 1 and not series.dots:
            points = [(left, points[0][1]), (left + WIDTH, points[0][1])]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        dashes = f' stroke-dasharray="{_DASHES[index]}"' if _DASHES[index] else ""
        parts.append(f'<polyline class="line" points="{path}" fill="none" stroke="#123570" stroke-width="2"{dashes}/>')
        if series.dots:
            parts += [f'<circle class="dot" cx="{px:.1f}" cy="{py:.1f}" r="3.5" fill="#123570"/>' for px, py in points]
        parts += _key(series, index, left + index * WIDTH / 2)
    return parts


def _key(series: _Series, index: int, left: float) -> list[str]:
    dashes = f' stroke-dasharray="{_DASHES[index]}"' if _DASHES[index] else ""
    line = f'<path class="line" d="M{left:.1f} {TOP - 18}h22" stroke="#123570" stroke-width="2" fill="none"{dashes}/>'
    return [line, _text(left + 27, TOP - 14, series.label, "start", size=10)]


def _axes(devices: Sequence[int], decades: tuple[int, int], left: float, x: _Scale, y: _Scale) -> list[str]:
    bottom = TOP + HEIGHT
    parts = [f'<path class="axis" d="M{left} {TOP}V{bottom}H{left + WIDTH}" fill="none" stroke="#16181d"/>']
    for exponent in range(decades[0], decades[1] + 1):
        value = 10.0**exponent
        parts.append(f'<path class="axis" d="M{left} {y(value):.1f}h{WIDTH}" stroke="#16181d" stroke-opacity="0.15"/>')
        parts.append(_text(left - 8, y(value) + 4, f"{value:,g}" if exponent >= 0 else f"{value:g}", "end"))
    step = max(1, -(-len(devices) // 7))
    for count in devices[::step]:
        parts.append(f'<path class="axis" d="M{x(count):.1f} {bottom}v4" stroke="#16181d" fill="none"/>')
        parts.append(_text(x(count), bottom + 18, f"{count:,}", "middle"))
    parts.append(_text(left + WIDTH / 2, bottom + 40, "devices", "middle"))
    return parts


def _decades(low: float, high: float) -> tuple[int, int]:
    """Exponents of the powers of ten around the values."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return first, max(last, first + 1)


def _text(x: float, y: float, text: str, anchor: str, bold: bool = False, size: int = 12) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text class="ink" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="#16181d"{weight}>'
        f"{escape(text)}</text>"
    )
