"""Colors of numbers as classes of a stylesheet: 0 to 1 in cividis, and around 0 from blue to orange."""

import math

from glassformer.explain.figures.svg import mixed, rgb, shade
from glassformer.explain.matrix import Scale

LEVELS = 32
"""Shades from 0 to 1."""
EITHER_SIDE = 12
"""Shades below 0, and as many above."""

_LIGHT = {"zero": "#ffffff", "below": "#3f7fc4", "above": "#d9772e"}
_DARK = {"zero": "#1b1f27", "below": "#5b9be0", "above": "#e38f47"}


def palette() -> list[str]:
    """The shades from 0 to 1."""
    return [shade(level / (LEVELS - 1)) for level in range(LEVELS)]


def shade_class(value: float, scale: Scale) -> str:
    """The class of a cell: ``w0`` to ``w31``, or ``s0`` to ``s24`` with ``s12`` at 0; ``x`` for what is no number."""
    if not math.isfinite(value):
        return "x"
    if scale.kind == "weights":
        return f"w{round(min(max(value, 0.0), 1.0) * (LEVELS - 1))}"
    if scale.kind == "signed":
        part = min(max(value / scale.high, -1.0), 1.0) if scale.high else 0.0
        return f"s{round((part + 1) * EITHER_SIDE)}"
    return ""


def stylesheet() -> str:
    """A rule for each class; those around 0 differ on light and on dark."""
    rules = [f".w{level}{{background:{color};color:{_ink(color)}}}" for level, color in enumerate(palette())]
    for level in range(2 * EITHER_SIDE + 1):
        light, dark = _signed(level, _LIGHT), _signed(level, _DARK)
        inks = f"light-dark({_ink(light)},{_ink(dark)})"
        rules.append(f".s{level}{{background:light-dark({light},{dark});color:{inks}}}")
    return "\n".join([*rules, _bar("weights", palette())])


def _bar(name: str, colors: list[str]) -> str:
    return f".bar.{name} i{{background:linear-gradient(to right,{','.join(colors[::3])},{colors[-1]})}}"


def _signed(level: int, colors: dict[str, str]) -> str:
    part = (level - EITHER_SIDE) / EITHER_SIDE
    return mixed(colors["zero"], colors["below" if part < 0 else "above"], abs(part))


def _ink(color: str) -> str:
    """Black or white, whichever has the higher contrast, 4.58 at least (WCAG 2.2, 1.4.3)."""
    linear = [part / 3294.6 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in rgb(color)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "#fff"
