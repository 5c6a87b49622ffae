"""Reports by class in the terminal: a table of rates, the confusion matrix, and the matrix as a figure."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glassformer.explain.figures.view import View
    from glassformer.metrics.class_report import ClassReport, Confusion

MATRIX_CLASSES = 12  # a larger matrix does not fit a terminal
ERRORS_LISTED = 10
PICTURE_CLASSES = 256  # a larger matrix is pooled
BRIGHTEST = 0.5  # top of the color scale without numbers; at 1, an error of 5 % would look like 0 %


def rates_table(report: "ClassReport", unit: str) -> str:
    """Table of rates: one row per class, lowest F1 first, then the averages."""
    from glassformer.text.decimals import probability

    order = sorted(report.classes.items(), key=lambda item: (item[1].f1, item[0]))
    rows: list[tuple[str, ...]] = [("", "precision", "recall", "F1", unit)]
    for name, rates in [*order, *((f"{name} average", rates) for name, rates in report.averages.items())]:
        rows.append((name, *(probability(value) for value in rates[:3]), f"{rates.support:,}"))
    return aligned(rows)


def confusion_text(confusion: "Confusion") -> str:
    """Confusion matrix if it fits a terminal, else the most frequent errors."""
    if len(confusion.labels) <= MATRIX_CLASSES:
        counts = [[f"{count:,}" for count in row] for row in confusion.counts.tolist()]
        rows = [("true \\ predicted", *confusion.labels)]
        return aligned([*rows, *((label, *row) for label, row in zip(confusion.labels, counts, strict=True))])
    errors = confusion.errors()
    if not errors:
        return "no errors"
    totals = dict(zip(confusion.labels, confusion.counts.sum(1).tolist(), strict=True))
    rows = [(true, predicted, f"{count:,} of {totals[true]:,}") for true, predicted, count in errors[:ERRORS_LISTED]]
    return "most frequent errors\n" + aligned([("true", "predicted", ""), *rows], numbers=1)


def aligned(rows: list[tuple[str, ...]], numbers: int | None = None) -> str:
    """Align columns of text; the last ``numbers`` (by default all but the first) to the right."""
    from glassformer.explain.matrix import columns_of

    n_columns = len(rows[0])
    widths = [max(columns_of(row[place]) for row in rows) for place in range(n_columns)]
    first = 1 if numbers is None else n_columns - numbers
    lines = []
    for row in rows:
        spaces = [" " * (width - columns_of(cell)) for cell, width in zip(row, widths, strict=True)]
        cells = [
            cell + space if place < first else space + cell
            for place, (cell, space) in enumerate(zip(row, spaces, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def confusion_view(confusion: "Confusion", unit: str) -> "View":
    """Confusion matrix as a figure; each row is divided by its sum, so that rare classes are legible too.

    If the cells have no room for numbers, shares of ``BRIGHTEST`` or more have the same shade.
    """
    from glassformer.explain.figures.view import View
    from glassformer.explain.matrix import Axis, Matrix, Scale

    labels, examples = list(confusion.labels), int(confusion.counts.sum())
    title = f"confusion, accuracy {confusion.accuracy:.2%} of {examples:,} {unit}"
    rows, columns = Axis.of("true class", labels), Axis.of("predicted class", labels)
    shade, high = "share of the true class", 1.0
    if len(labels) > MATRIX_CLASSES:
        shade, high = f"{shade} ({BRIGHTEST:g} or more: brightest)", BRIGHTEST
    matrix = Matrix(confusion.shares(), rows, columns, scale=Scale(shade, high=high))
    return View("confusion", title, [matrix], PICTURE_CLASSES)
