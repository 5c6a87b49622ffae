"""The heads of the model as small pictures, in one group for each attention."""

from dataclasses import dataclass, replace

from glassformer.explain.example import Example
from glassformer.explain.figures.attention import attention_views
from glassformer.explain.matrix import WEIGHTS, Axis, Matrix
from glassformer.explain.page.sheets import entropy, summary_of
from glassformer.text.decimals import aligned, decimal
from glassformer.web.explorer.panels.sentence import _module as module_of
from glassformer.web.explorer.picture import data_address
from glassformer.web.explorer.selection import Selection

LARGEST = 64
"""Rows and columns of a picture; a longer attention is pooled."""
SMALL_WEIGHTS = 0.5
"""Largest weight of an attention below which its pictures have a scale of their own, which is stated."""
TITLES = {
    "cross_attention": "The decoder attends to the source",
    "self_attention": "attends to itself",
}


@dataclass(frozen=True)
class HeadPicture:
    number: int
    picture: str
    summary: str
    measure: str
    weights: str
    """Address of the matrix that the measure is of."""
    address: str
    current: bool
    off: bool


@dataclass(frozen=True)
class HeadRow:
    """The heads of one attention."""

    title: str
    short: str
    address: str
    rows_title: str
    columns_title: str
    heads: tuple[HeadPicture, ...]
    note: str
    """Weights that a pixel stands for, if several, and the scale of the colors, if it does not end at 1."""
    brightest: float
    """Weight of the brightest color."""


def head_rows(example: Example, selection: Selection, path: str = "") -> list[HeadRow]:
    """Rows of all attentions, cross-attention first; or that of ``path``."""
    paths = [one for one in attention_views(example).values() if f"{one}.weights" in example.trace]
    order = {"cross_attention": 0, "self_attention": 1}
    chosen = [path] if path else sorted(dict.fromkeys(paths), key=lambda one: order.get(one.rpartition(".")[2], 2))
    return [_row(example, selection, one) for one in chosen]


def _row(example: Example, selection: Selection, path: str) -> HeadRow:
    part, layer, sublayer = module_of(path)
    queries, keys = example.attention_sides(part, sublayer)
    rows, columns = Axis(queries.name, queries.labels), Axis(keys.name, keys.labels)
    module = selection.at_module(part, layer, sublayer)
    pictures = []
    weights = example.trace[f"{path}.weights"][0].double().cpu().numpy()
    brightest = _brightest(float(weights.max()))
    for number, one in enumerate(weights):
        matrix = Matrix(one, rows, columns, f"head {number}", WEIGHTS)
        pictures.append(
            HeadPicture(
                number,
                data_address(one / brightest, "weights", LARGEST),
                summary_of(matrix),
                f"entropy {aligned(entropy(one), 2)}",
                replace(module, head=number, stage="weights").address,
                replace(module, head=number).address,
                selection.path == path and selection.head == number,
                any(text.startswith(f"{path}.{number}:") for text in selection.interventions),
            )
        )
    short = "" if layer is None else f"layer {layer}"
    what = f"{part} {sublayer.replace('_', '-')}" + (f", layer {layer}" if layer is not None else "")
    return HeadRow(
        what[:1].upper() + what[1:],
        short,
        module.address,
        f"{queries.name} (query)",
        f"{keys.name} (key)",
        tuple(pictures),
        _note(len(queries.labels), len(keys.labels), brightest),
        brightest,
    )


def _brightest(largest: float) -> float:
    """Weight of the brightest color: 1, or the largest weight where all are small and would be one dark square."""
    return largest if 0 < largest < SMALL_WEIGHTS else 1.0


def _note(rows: int, columns: int, brightest: float) -> str:
    down, across = -(-rows // LARGEST), -(-columns // LARGEST)
    pooled = "" if down == across == 1 else f"a pixel is the largest of {down} × {across} weights"
    colors = "" if brightest == 1 else f"colors from 0 to {decimal(brightest)}"
    return " · ".join(filter(None, (pooled, colors)))
