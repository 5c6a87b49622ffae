"""A matrix of attention, in the terminal and as SVG: numbers on a shade that follows them, legible without colour."""

from dataclasses import dataclass
from html import escape

from rich.style import Style
from rich.table import Table
from rich.text import Text

# Samples of cividis (Nuñez, Anderton & Renslow 2018), a palette that colour-blind readers see as everybody does.
CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"]
CELL, MARGIN = 76, 96


@dataclass(frozen=True)
class Heatmap:
    """``rows[target][source]``: how much the step that predicts a target token looks at each source token."""

    source: list[str]
    target: list[str]
    rows: list[list[float]]
    title: str

    def table(self) -> Table:
        """For a terminal; the last column shows that every row sums to 1."""
        table = Table(title=self.title, title_style="dim", caption="rows ask, columns are asked", caption_style="dim")
        table.add_column("")
        for token in self.source:
            table.add_column(Text(token), justify="center")
        table.add_column("Σ", justify="right", style="dim")
        for token, row in zip(self.target, self.rows, strict=True):
            cells = (Text(f" {value:.2f} ", Style(color=ink(value), bgcolor=shade(value))) for value in row)
            table.add_row(Text(token), *cells, f"{sum(row):.2f}")
        return table

    def svg(self) -> str:
        """A picture that needs nothing but itself."""
        width, height = MARGIN + CELL * len(self.source) + 24, MARGIN + 40 * len(self.target) + 24
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'font-family="ui-monospace, monospace" font-size="15" role="img">',
            f"<title>{escape(self.title)}</title>",
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            _label(MARGIN + CELL * len(self.source) / 2, 28, "source (who is asked)", "middle"),
            f'<text transform="translate(22 {MARGIN + 20 * len(self.target)}) rotate(-90)" text-anchor="middle">'
            "target (who asks)</text>",
        ]
        for column, token in enumerate(self.source):
            parts.append(_label(MARGIN + CELL * (column + 0.5), MARGIN - 14, token, "middle"))
        for row, token in enumerate(self.target):
            y = MARGIN + 40 * row
            parts.append(_label(MARGIN - 10, y + 25, token, "end"))
            for column, value in enumerate(self.rows[row]):
                x = MARGIN + CELL * column
                parts.append(f'<rect x="{x}" y="{y}" width="{CELL}" height="40" fill="{shade(value)}"/>')
                parts.append(_label(x + CELL / 2, y + 25, f"{value:.2f}", "middle", ink(value)))
        return "\n".join([*parts, "</svg>\n"])


def shade(value: float) -> str:
    """The colour of a value from 0 to 1."""
    return CIVIDIS[max(0, min(int(value * len(CIVIDIS)), len(CIVIDIS) - 1))]


def ink(value: float) -> str:
    """Black or white, whichever is read more easily on ``shade(value)``."""
    return "black" if value >= 0.5 else "white"


def _label(x: float, y: float, text: str, anchor: str, fill: str = "black") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{fill}">{escape(text)}</text>'
