"""A matrix in the terminal: numbers on a background that darkens with them, legible without colour too."""

from typing import TYPE_CHECKING

from rich.style import Style
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from glassformer.translator import CrossAttention

# Samples of cividis (Nuñez, Anderton & Renslow 2018), a palette that colour-blind readers see as everybody does.
_CIVIDIS = [
    "#00224e",
    "#123570",
    "#3b496c",
    "#575d6d",
    "#707173",
    "#8a8678",
    "#a59c74",
    "#c3b369",
    "#e1cc55",
    "#fee838",
]


def attention_table(found: "tuple[CrossAttention, int, int]") -> Table:
    """Rows are target words (who asks), columns source words (who is asked); every row sums to 1."""
    attention, layer, head = found
    table = Table(
        title=f"decoder layer {layer}, head {head}: rows ask (target), columns are asked (source)", title_style="dim"
    )
    table.add_column("")
    for token in attention.source:
        table.add_column(Text(token), justify="center")
    table.add_column("Σ", justify="right", style="dim")
    for token, row in zip(attention.target, attention.weights[layer, head].tolist(), strict=True):
        table.add_row(Text(token), *map(_cell, row), f"{sum(row):.2f}")
    return table


def _cell(value: float) -> Text:
    shade = min(int(value * len(_CIVIDIS)), len(_CIVIDIS) - 1)
    return Text(f" {value:.2f} ", Style(color="black" if shade >= 5 else "white", bgcolor=_CIVIDIS[shade]))
