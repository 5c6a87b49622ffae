"""Links to the heads of every attention, each with a measure, for the panels that show one head."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from glassformer.explain.example import Example
from glassformer.explain.figures.attention import attention_views
from glassformer.explain.matrix import WEIGHTS
from glassformer.explain.page.sheets import shade_class
from glassformer.text.decimals import weight
from glassformer.web.explorer.panels.sentence import _module as module_of
from glassformer.web.explorer.panels.sentence import main_attention
from glassformer.web.explorer.selection import Selection


@dataclass(frozen=True)
class HeadChoice:
    number: int
    text: str
    shade: str
    address: str
    current: bool


@dataclass(frozen=True)
class PickerRow:
    """The heads of one attention."""

    title: str
    heads: tuple[HeadChoice, ...]


def attention_paths(example: Example) -> list[str]:
    """Paths of the attentions that were recorded, cross-attention first."""
    paths = dict.fromkeys(path for path in attention_views(example).values() if f"{path}.weights" in example.trace)
    return sorted(paths, key=lambda path: not path.endswith("cross_attention"))


def chosen_head(
    example: Example, selection: Selection, measures: Mapping[str, Sequence[float | None]]
) -> tuple[str, int]:
    """The attention and head of the selection; the one with the largest measure where it names none."""
    path = selection.path if selection.path in attention_paths(example) else main_attention(example)
    count = len(example.trace[f"{path}.weights"][0])
    if selection.head is not None and path == selection.path:
        return path, min(selection.head, count - 1)
    values = [-1.0 if value is None else value for value in measures.get(path, [])] or [0.0]
    return path, values.index(max(values))


def picker_rows(
    example: Example,
    selection: Selection,
    chosen: tuple[str, int],
    measures: Mapping[str, Sequence[float | None]],
) -> list[PickerRow]:
    """A row of links for each attention. Measures are from 0 to 1."""
    rows = []
    for path in attention_paths(example):
        part, layer, sublayer = module_of(path)
        known = measures.get(path, ())
        heads = []
        for number in range(len(example.trace[f"{path}.weights"][0])):
            value = known[number] if number < len(known) else None
            address = replace(selection, part=part, layer=layer, sublayer=sublayer, head=number).address
            text, shade = "–" if known else str(number), ""
            if value is not None:
                text, shade = weight(value), shade_class(value, WEIGHTS)
            heads.append(HeadChoice(number, text, shade, address, (path, number) == chosen))
        title = f"{part}{'' if layer is None else f' layer {layer}'} {sublayer.replace('_', '-')}"
        rows.append(PickerRow(title, tuple(heads)))
    return rows
