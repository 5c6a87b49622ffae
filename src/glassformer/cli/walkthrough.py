"""``glassformer walkthrough``: one example through its model, step by step, with every number."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli.io import open_output, write_errors
from glassformer.cli.messages import console, note
from glassformer.cli.options import Device, SecondText, complete_runs, refuse_zstd
from glassformer.cli.run import describe_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from glassformer.explain import Example
    from glassformer.explain.matrix import Matrix
    from glassformer.explain.walkthrough.step import Pixels, Step

PIXELS = 32
"""Maximum side of an image."""
WIDEST, HIGHEST = 10, 24
"""Maximum columns and rows of a table in a terminal; a line counts the others, which the report has."""


def command(
    run: Annotated[
        str,
        typer.Argument(
            help="Run or checkpoint folder. [default: the package's own example]", autocompletion=complete_runs
        ),
    ] = "",
    text: Annotated[str, typer.Argument(help="Sentence, or the path of an image or a CSV file.")] = "",
    target: SecondText = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", callback=refuse_zstd, help="Write the whole walkthrough as one HTML file."),
    ] = None,
    step: Annotated[int | None, typer.Option(min=1, help="Print this step only.")] = None,
    device: Device = "cpu",
) -> None:
    """Follow one example through the model, number by number.

    Every number is checked against its formula.
    """
    from glassformer.explain.walkthrough.walkthrough import walkthrough

    example = _example(run, text, target, device)
    if html is None:
        steps = walkthrough(example)
        _check(step, len(steps))
        with write_errors("standard output"):
            _print(example, [one for one in steps if step in (None, one.number)])
        return
    from glassformer.explain.report import report

    page = report(example)
    with open_output(str(html)) as stream:
        stream.write(page)
    note(f"{html} is written; open it in a browser")


def _example(run: str, text: str, target: str | None, device: str) -> "Example":
    from glassformer.cli.toy_example import SENTENCE, first_translator
    from glassformer.errors import DataError
    from glassformer.explain import ExampleInput, examine, examine_run

    if run and not text.strip():
        raise DataError('there is no sentence to follow; write for example glassformer walkthrough RUN "A dog runs."')
    if run:
        describe_run(run, device=device)
        return examine_run(run, ExampleInput(text, target, device=device))
    return examine(first_translator(device=device), text or SENTENCE, target)


def _check(step: int | None, count: int) -> None:
    from glassformer.errors import ConfigError

    if step is not None and step > count:
        raise ConfigError(f"step={step} is outside this walkthrough; choose from 1 to {count}")


def _print(example: "Example", steps: "list[Step]") -> None:
    from rich.markup import escape

    screen = console()
    screen.print(f"\n[bold]{escape(example.input)}[/bold] → [bold]{escape(example.output)}[/bold]")
    for step in steps:
        for part in _parts(step):
            screen.print(part)
    failed = sum(not check.passed for step in steps for check in step.checks)
    count = sum(len(step.checks) for step in steps)
    screen.print(f"\n[red]{failed} of {count} checks failed[/red]" if failed else f"\nall {count} checks passed")


def _parts(step: "Step") -> "Iterator[RenderableType]":
    from rich.markup import escape
    from rich.rule import Rule

    yield ""
    yield Rule(f"[bold]{step.number}  {escape(step.title)}[/bold]", align="left")
    yield f"{escape(step.what)}\n{escape(step.why)}"
    yield f"\n  [bold]{escape(step.formula)}[/bold]   [dim]{escape(step.reference)}[/dim]\n"
    if step.image is not None:
        yield _image(step.image)
    if step.words:
        yield _words(step.words)
    if step.caption:
        yield f"[dim]{escape(step.caption)}[/dim]"
    for table in step.tables:
        across = f" × {table.columns.title}" if table.columns.title else ""
        yield f"\n[italic]{escape(table.title)}[/italic]  [dim]{escape(table.rows.title + across)}[/dim]"
        yield _numbers(table)
    if step.evaluation is not None:
        yield f"\n  {escape(step.evaluation.text())}"
    for check in step.checks:
        yield f"  {'[green]✓[/green]' if check.passed else '[red]✗[/red]'} {escape(check.text)}"


def _image(image: "Pixels") -> "RenderableType":
    """Pixels as colors, two columns each; small images have gaps between their patches."""
    from rich.style import Style
    from rich.text import Text

    from glassformer.explain.figures.svg import pixel_colors, reduced

    rows = pixel_colors(reduced(image.values, PIXELS))
    patch = image.patch if len(rows) == len(image.values) and len(rows[0]) == image.values.shape[1] else len(rows)
    picture = Text()
    for y, row in enumerate(rows):
        picture.append("\n" if y and y % patch == 0 else "")
        for x, color in enumerate(row):
            picture.append(" " if x and x % patch == 0 else "")
            picture.append("  ", Style(bgcolor=color))
        picture.append("\n")
    return picture


def _words(words: tuple[tuple[str, ...], ...]) -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    heading, *rows = words
    omitted = _omitted(len(heading) - WIDEST, len(rows) - HIGHEST)
    result = Table(box=None, header_style="dim", caption=omitted, caption_style="dim", caption_justify="left")
    for title in heading[:WIDEST]:
        result.add_column(Text(title), overflow="fold")
    for row in rows[:HIGHEST]:
        result.add_row(*map(Text, row[:WIDEST]))
    return result


def _numbers(table: "Matrix") -> "RenderableType":
    """A table with the labels of both axes; cells of weights are shaded."""
    from rich.style import Style
    from rich.table import Table
    from rich.text import Text

    from glassformer.explain.figures.svg import ink, shade

    scale = table.scale
    caption = _omitted(len(table.columns) - WIDEST, len(table.rows) - HIGHEST)
    result = Table(box=None)
    result.caption, result.caption_style, result.caption_justify = caption, "dim", "left"
    result.add_column("", style="dim")
    for label in table.columns.labels[:WIDEST]:
        result.add_column(Text(label.visible), justify="right", header_style="dim")
    for label, row in zip(table.rows.labels[:HIGHEST], table.values.tolist(), strict=False):
        cells = [
            Text(f" {scale.cell(value)} ", Style(color=ink(value), bgcolor=shade(value)))
            if scale.kind == "weights"
            else Text(scale.cell(value))
            for value in row[:WIDEST]
        ]
        result.add_row(Text(label.visible), *cells)
    return result


def _omitted(columns: int, rows: int) -> str | None:
    """Number of columns and rows that do not fit a terminal; None if all do."""
    parts = [f"{count} further {axis}" for count, axis in ((columns, "columns"), (rows, "rows")) if count > 0]
    return f"… {' and '.join(parts)}; --html shows them" if parts else None
