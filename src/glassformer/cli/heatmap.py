"""A view in the terminal: numbers on a shade that follows them, legible without color."""

from rich.style import Style
from rich.table import Table
from rich.text import Text

from glassformer.explain.figures.svg import ink, label, number, place, shade
from glassformer.explain.figures.view import View


def table(view: View) -> Table:
    """The first panel of a ``view`` of attention; the last column shows that every row sums to 1."""
    panel = view.panels[0]
    caption = f"rows: {view.row_axis}; columns: {view.column_axis}"
    table = Table(title=view.title, title_style="dim", caption=caption, caption_style="dim")
    table.add_column("")
    for token in panel.columns:
        table.add_column(Text(label(token)), justify="center")
    table.add_column("Σ", justify="right", style="dim")
    for token, row in zip(panel.rows, panel.values, strict=True):
        places = [place(float(value), view.low, view.high) for value in row]
        cells = (
            Text(f" {number(float(value))} ", Style(color=ink(at), bgcolor=shade(at)))
            for value, at in zip(row, places, strict=True)
        )
        table.add_row(Text(label(token)), *cells, f"{row.sum():.2f}")
    return table
