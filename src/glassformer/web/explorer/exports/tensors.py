"""Exports of the panels of tensors: a matrix, a number, a module, an attention, the output."""

from dataclasses import replace

from glassformer.errors import ConfigError
from glassformer.explain.example import Example
from glassformer.explain.figures.attention import attention_views, view
from glassformer.explain.figures.view import View
from glassformer.explain.formula.expression import Expression, Number
from glassformer.explain.formula.formula import Formula, explain
from glassformer.explain.matrix import SINGLE_COLUMN, Matrix, Scale
from glassformer.layers.attention import MultiHeadAttention
from glassformer.web.explorer.exports.content import (
    EVERY_FORMAT,
    TENSORS,
    ExportContent,
    ExportTable,
    PanelDrawing,
    PanelExport,
    arrays_of,
)
from glassformer.web.explorer.interventions import is_replaced
from glassformer.web.explorer.panels.cell import cell_of, index_of, parts_of
from glassformer.web.explorer.panels.chain import Chain, chains_of
from glassformer.web.explorer.panels.matrix import whole_matrix
from glassformer.web.explorer.panels.output import output_of
from glassformer.web.explorer.panels.sentence import PITCH, WIDTH, main_attention, sentence_of
from glassformer.web.explorer.places import axis_of, grid_axes, head_count, head_in, plain_name, size_of, tensor_of
from glassformer.web.explorer.selection import Selection
from glassformer.web.explorer.session import Session
from glassformer.web.explorer.traced import TracedSelection


def _named(example: Example, selection: Selection, name: str) -> str:
    """The tensor, with its head if it has several."""
    heads = head_count(example, name)
    return f"{name}.head{head_in(example, name, selection.head or 0)}" if heads > 1 else name


def _titled(example: Example, selection: Selection, name: str) -> str:
    heads = head_count(example, name)
    return plain_name(name) + (f", head {head_in(example, name, selection.head or 0)}" if heads > 1 else "")


def _index_code(example: Example, selection: Selection, name: str) -> str:
    """``[0, 1]``: the index that leaves the axes of the table."""
    axes, grid = example.trace.axes(name), grid_axes(example, name)
    head = head_in(example, name, selection.head or 0) if head_count(example, name) else 0
    places = [":" if axis in grid else str(head) if axis == "head" else "0" for axis in axes]
    while places and places[-1] == ":":
        places.pop()
    return f"[{', '.join(places)}]" if places else ""


def _matrix(session: Session, traced: TracedSelection) -> ExportContent:
    """The selected tensor, of one head, at its full size."""
    example, selection = traced.example, traced.selection
    name = tensor_of(selection)
    matrix = whole_matrix(example, name, selection.head or 0)
    title, stage = _titled(example, selection, name), selection.stage.rpartition(".")[2].replace("_", " ")
    scale = replace(matrix.scale, title=stage)
    plain = Matrix(matrix.values, matrix.rows, matrix.columns, "", scale)
    return ExportContent(
        name=_named(example, selection, name),
        title=title,
        numbers=View(name, title, [plain]),
        arrays=arrays_of(example, [name]),
        code=(
            f"# {' × '.join(grid_axes(example, name))}",
            f'values = example.trace["{name}"]{_index_code(example, selection, name)}',
            "print(values)",
        ),
    )


def _cell(session: Session, traced: TracedSelection) -> ExportContent:
    """The selected number: its formula, and every operand of it."""
    example, selection = traced.example, traced.selection
    name = tensor_of(selection)
    index = index_of(example, selection, name)
    place = ", ".join(f"{axis}={value}" for axis, value in index.items())
    batch = "batch=0, " if "batch" in example.trace.axes(name) else ""
    formula = _formula(example, selection, name, index)
    value = float(example.trace.at(name, **({"batch": 0} if batch else {}), **index))
    code = [f'values = example.trace.at("{name}", {batch}{place})', "print(values)"]
    if formula is not None:
        code += [f'print(glassformer.explain(example.trace, "{name}", {place}))']
    operands = [] if formula is None else [one.place.name for one in formula.operands if one.place is not None]
    return ExportContent(
        name=".".join([name, *(f"{axis}{value}" for axis, value in index.items())]),
        title=f"{plain_name(name)}, {place}",
        numbers=ExportTable(("value",), ((value,),)) if formula is None else _terms(formula.expression),
        formula=formula,
        drawing=PanelDrawing("drawn_number.svg", {"cell": cell_of(example, selection)}),
        arrays=arrays_of(example, dict.fromkeys([name, *operands])),
        code=tuple(code),
    )


def _formula(example: Example, selection: Selection, name: str, index: dict[str, int]) -> Formula | None:
    if is_replaced(selection.interventions, name, selection.head):
        return None
    try:
        return explain(example.trace, name, **index)
    except ConfigError:
        return None


def _terms(expression: Expression) -> ExportTable:
    """Every term with its numbers, the largest first, as the inspector lists the first of them."""
    parts = parts_of(expression)[1]
    most = max((len(part.numbers) for part in parts), default=0)
    headings = ["term"]
    for number in range(most):
        headings += [f"operand {number + 1}", f"value {number + 1}"]
    rows: list[tuple[str | int | float, ...]] = []
    for part in parts:
        row: list[str | int | float] = [part.value]
        for one in part.numbers:
            row += [_operand_name(one), one.value]
        rows.append((*row, *[""] * (len(headings) - len(row))))
    return ExportTable(tuple(headings), tuple(rows))


def _operand_name(number: Number) -> str:
    if number.place is None:
        return number.symbol or "constant"
    return f"{number.place.name}[{', '.join(str(value) for _, value in number.place.index)}]"


def _attention(session: Session, traced: TracedSelection) -> ExportContent:
    """The attention that is drawn: one head, or the mean of all."""
    example, selection = traced.example, traced.selection
    module = example.model.get_submodule(selection.path)
    path = selection.path if isinstance(module, MultiHeadAttention) else main_attention(example)
    short = next(name for name, one in attention_views(example).items() if one == path)
    head = selection.head
    figure = view(example, short, head=head, average=head is None)
    drawn = sentence_of(example, selection, path, head)
    if selection.path:
        names = [card.name for chain in chains_of(example, selection) for card in chain.cards]
    else:
        names = [f"{one}.weights" for one in attention_views(example).values() if f"{one}.weights" in example.trace]
    chosen = "[0].mean(0)  # the mean of all heads" if head is None else f"[0, {head}]"
    return ExportContent(
        name=f"{path}.weights." + ("mean" if head is None else f"head{head}"),
        title=drawn.title,
        numbers=figure,
        drawing=PanelDrawing("drawn_links.svg", {"view": drawn, "pitch": PITCH, "width": WIDTH}),
        arrays=arrays_of(example, dict.fromkeys(names)),
        code=(f'values = example.trace["{path}.weights"]{chosen}', "print(values)"),
    )


def _module(session: Session, traced: TracedSelection) -> ExportContent:
    """The tensors of a module as cards; each is a matrix of its own page."""
    example, selection = traced.example, traced.selection
    chains = chains_of(example, selection)
    names = dict.fromkeys(card.name for chain in chains for card in chain.cards)
    return ExportContent(
        name=selection.path,
        title=plain_name(selection.path),
        numbers=_cards(example, chains),
        drawing=PanelDrawing("drawn_chains.svg", {"chains": chains}),
        arrays=arrays_of(example, names),
        code=(
            "values = {",
            *(f'    "{name}": example.trace["{name}"],' for name in names),
            "}",
            "print({name: tuple(tensor.shape) for name, tensor in values.items()})",
        ),
    )


def _cards(example: Example, chains: list[Chain]) -> ExportTable:
    """A row for each tensor: its axes and sizes, and its smallest and largest number."""
    rows = []
    for name in dict.fromkeys(card.name for chain in chains for card in chain.cards):
        tensor = example.trace[name].double()
        finite = tensor[tensor.isfinite()]
        low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 0.0)
        sizes = " × ".join(f"{axis} {size_of(example, name, axis)}" for axis in example.trace.axes(name))
        rows.append((name, sizes, low, high))
    return ExportTable(("tensor", "axes", "smallest", "largest"), tuple(rows))


def _output(session: Session, traced: TracedSelection) -> ExportContent:
    """The distribution at the selected step: of every output as numbers, of the listed ones as a picture."""
    example, selection = traced.example, traced.selection
    panel = output_of(example, selection)
    assert panel is not None
    name = [one for one in example.trace if one.endswith(".probabilities")][-1]
    axes = grid_axes(example, name)
    step = min(selection.step or 0, size_of(example, name, axes[0]) - 1) if len(axes) > 1 else None
    values = example.trace[name][0].double().cpu().numpy()
    outputs = axis_of(example, name, axes[-1], range(size_of(example, name, axes[-1])))
    column = (values if step is None else values[step])[:, None]
    title = f"{plain_name(name)}" + ("" if step is None else f", position {step}")
    numbers = View(name, title, [Matrix(column, outputs, SINGLE_COLUMN, "", Scale("probability"))])
    logits = f"{name.rpartition('.')[0]}.logits"
    return ExportContent(
        name=name if step is None else f"{name}.position{step}",
        title=title,
        numbers=numbers,
        listed=ExportTable(
            ("output", "probability"), tuple((one.label.text, one.probability) for one in panel.candidates)
        ),
        drawing=PanelDrawing("drawn_output.svg", {"output": panel}),
        arrays=arrays_of(example, [one for one in (name, logits) if one in example.trace]),
        code=(f'values = example.trace["{name}"][0{"" if step is None else f", {step}"}]', "print(values)"),
    )


def _every_tensor(session: Session, traced: TracedSelection) -> ExportContent:
    """All tensors of the trace."""
    return ExportContent(
        name="tensors",
        title="every tensor",
        arrays=arrays_of(traced.example, traced.example.trace),
        code=(
            "values = {name: example.trace[name] for name in example.trace}",
            "print({name: tuple(tensor.shape) for name, tensor in values.items()})",
        ),
    )


def _title_of_stage(example: Example, selection: Selection) -> str:
    if selection.stage:
        return _titled(example, selection, tensor_of(selection))
    if selection.path and not isinstance(example.model.get_submodule(selection.path), MultiHeadAttention):
        return plain_name(selection.path)
    path = selection.path or main_attention(example)
    return plain_name(path) + (", mean of the heads" if selection.head is None else f", head {selection.head}")


MATRIX = PanelExport(_title_of_stage, EVERY_FORMAT, _matrix)
ATTENTION = PanelExport(_title_of_stage, EVERY_FORMAT, _attention)
MODULE = PanelExport(_title_of_stage, EVERY_FORMAT, _module)
CELL = PanelExport(lambda example, selection: "This number", EVERY_FORMAT, _cell)
OUTPUT = PanelExport(lambda example, selection: "The distribution", EVERY_FORMAT, _output)
EVERY_TENSOR = PanelExport(lambda example, selection: "Every tensor", TENSORS, _every_tensor)
