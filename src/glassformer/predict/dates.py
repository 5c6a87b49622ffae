"""Dates that go on as they did: by the same time, by months or years, or by the same number."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from itertools import pairwise

FORMS = (
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d",
    "%Y-%m",
)


def continued(cells: Sequence[str], count: int) -> tuple[str, ...]:
    """The ``count`` dates after the last of ``cells``, written as it is; none where they are not regular.

    Some dates of a table may be left out; the smallest step continues.
    """
    if len(cells) < 2:
        return ()
    with suppress(ValueError):
        numbers = [int(cell) for cell in cells]
        step = min(b - a for a, b in pairwise(numbers))
        return tuple(str(numbers[-1] + step * n) for n in range(1, count + 1))
    for form in FORMS:
        with suppress(ValueError):
            moments = [datetime.strptime(cell, form) for cell in cells]
            if [moment.strftime(form) for moment in moments[-2:]] != list(cells[-2:]):
                return ()  # written otherwise, as 2016-7-1
            return _moments(moments, form, count)
    return ()


def _moments(moments: Sequence[datetime], form: str, count: int) -> tuple[str, ...]:
    months = [12 * moment.year + moment.month for moment in moments]
    between = {b - a for a, b in pairwise(months)}
    same_day = len({(moment.day, moment.hour, moment.minute, moment.second) for moment in moments}) == 1
    last = moments[-1]
    if same_day and min(between) > 0 and last.day <= 28:
        after = [months[-1] + min(between) * n for n in range(1, count + 1)]
        found = [last.replace(year=(month - 1) // 12, month=(month - 1) % 12 + 1) for month in after]
        return tuple(moment.strftime(form) for moment in found)
    steps = [b - a for a, b in pairwise(moments)]
    if any(step % min(steps) for step in steps):
        return ()  # the ends of months, say
    return tuple((last + min(steps) * n).strftime(form) for n in range(1, count + 1))
