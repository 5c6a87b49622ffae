"""HTML representations of objects in notebooks.

They are self-contained, escape all text, and inherit the colors of the page, so that both themes are legible.
"""

from collections.abc import Mapping, Sequence
from html import escape

from glassformer.text.decimals import weight

MAX_LABELS = 40
"""Maximum rows or columns of a displayed table; a note below it counts the others."""
CELL = "padding:2px 6px;text-align:center;font-size:11px;border:0;color:inherit"
LABEL = "padding:2px 6px;font-size:12px;font-weight:normal;border:0;white-space:pre;color:inherit;background:none"
UPRIGHT = f"{LABEL};writing-mode:vertical-rl;transform:rotate(180deg);text-align:left;vertical-align:bottom"
TABLE = "border-collapse:collapse;margin:6px 0;color:inherit;background:none"


def facts_as_html(title: str, facts: Mapping[str, str]) -> str:
    """Two-column table of ``facts`` under ``title``."""
    rows = "".join(
        f'<tr style="background:none"><th scope="row" style="{LABEL};text-align:left;opacity:.7">{escape(name)}</th>'
        f'<td style="{LABEL};text-align:left;white-space:pre-wrap;overflow-wrap:anywhere">{escape(value)}</td></tr>'
        for name, value in facts.items()
    )
    return f'{_heading(title)}<table style="{TABLE}">{rows}</table>'


def weights_as_html(title: str, rows: Sequence[str], columns: Sequence[str], weights: Sequence[Sequence[float]]) -> str:
    """Shaded table of weights from 0 to 1; ``rows`` and ``columns`` are the labels."""
    heading = "".join(f'<th scope="col" style="{UPRIGHT}">{escape(label)}</th>' for label in columns[:MAX_LABELS])
    body = "".join(
        f'<tr style="background:none"><th scope="row" style="{LABEL};text-align:right">{escape(label)}</th>'
        f"{''.join(map(_weight, row[:MAX_LABELS]))}</tr>"
        for label, row in zip(rows[:MAX_LABELS], weights, strict=False)
    )
    left = [
        f"{len(labels) - MAX_LABELS} further {name}"
        for labels, name in ((rows, "rows"), (columns, "columns"))
        if len(labels) > MAX_LABELS
    ]
    more = f'<div style="font-size:12px;opacity:.7">… {" and ".join(left)}</div>' if left else ""
    table = f'<table style="{TABLE}"><tr style="background:none"><td style="{CELL}"></td>{heading}</tr>'
    return f'{_heading(title)}<div style="overflow-x:auto">{table}{body}</table>{more}</div>'


def _heading(title: str) -> str:
    return f'<div style="font-size:13px;padding:2px 6px">{escape(title)}</div>'


def _weight(value: float) -> str:
    """Shaded table cell. Its opacity is at most 0.6, so that the number is legible on light and dark pages."""
    shade = f"background:rgba(59,130,246,{0.6 * min(max(value, 0.0), 1.0):.3f})"
    return f'<td style="{CELL};{shade}">{weight(value)}</td>'
