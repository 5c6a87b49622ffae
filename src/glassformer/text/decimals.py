"""Numbers as text: one function for each place that numbers have in formulas, tables, figures, checks and notebooks.

Every minus is typographic, and zero has none. Copies for programs (CSV, attributes of HTML) have all digits and are
written elsewhere. Counts are written with ``:,``.
"""

import math


def decimal(value: float) -> str:
    """Four significant digits; −∞ as such."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return _minus(f"{value:.4g}")


def compact(value: float) -> str:
    """Cell of a figure: two decimals, one or none where the number is large."""
    if math.isinf(value):
        return decimal(value)
    return _minus(f"{value:.{max(0, 3 - len(str(int(abs(value)))))}f}" if abs(value) < 1e6 else f"{value:.1e}")


def precise(value: float) -> str:
    """Six significant digits, where four would hide a difference."""
    return _minus(f"{value:.6g}")


def aligned(value: float, digits: int) -> str:
    """Cell of a column with as many decimals in every cell, so that points stand below each other."""
    return _minus(f"{value:.{digits}f}")


def column_digits(largest: float) -> int:
    """Number of decimals of a column, by its largest absolute value."""
    return 3 if largest < 10 else 2 if largest < 1000 else 1


def weight(value: float) -> str:
    """Attention weight; an exact 0 as such. ``page/script/grid.js`` writes it in the same way."""
    return "0" if value == 0 else aligned(value, 2)


def probability(value: float) -> str:
    """Probability of an output, with four decimals."""
    return aligned(value, 4)


def share(value: float) -> str:
    """Part of a whole, in percent."""
    return f"{value:.0%}"


def setting(value: float) -> str:
    """Value of a setting, in full: 10000, not 1e+04."""
    return f"{value:.10g}"


def difference(value: float) -> str:
    """Difference of a number and its formula: its order of magnitude."""
    return f"{value:.1g}"


def _minus(text: str) -> str:
    """``text`` with typographic minus signs; a number that is rounded to zero has none."""
    return text.lstrip("-") if not text.strip("-0.") else text.replace("-", "−")
