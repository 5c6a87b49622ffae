"""One row of attention as bars that can be moved: what it was, what it is, and what the next word becomes."""

from dataclasses import dataclass, replace

from glassformer.explain.matrix import Label
from glassformer.text.decimals import weight
from glassformer.web.explorer.interventions import UNITS, RowEdit, allowed_keys, units_of
from glassformer.web.explorer.panels.before_after import PROBABILITIES, WordChange, words_of
from glassformer.web.explorer.places import labels_of, steps_of, tensor_of
from glassformer.web.explorer.selection import Selection
from glassformer.web.explorer.traced import TracedSelection

LONGEST = 64
"""Keys of a row that can be edited."""
LISTED = 4


@dataclass(frozen=True)
class KeyBar:
    """A key of the row: its weight in thousandths now and before, and the address in which all weight is on it."""

    label: Label
    units: int
    before: str
    before_part: float
    allowed: bool
    only: str


@dataclass(frozen=True)
class RowEditor:
    """``place`` names the row in the address, ``base`` is the address without its edit."""

    title: str
    place: str
    base: str
    bars: tuple[KeyBar, ...]
    edited: bool
    uniform: str
    earlier: str
    later: str
    words_title: str
    words: tuple[WordChange, ...]
    message: str


def row_editor_of(traced: TracedSelection) -> RowEditor | None:
    """The editor of the selected row of attention weights; None for another tensor."""
    selection = traced.selection
    name = tensor_of(selection)
    if selection.stage != "weights" or name not in traced.original.trace or selection.head is None:
        return None
    path = name.rpartition(".")[0]
    now, before = (one.trace[name][0, selection.head] for one in (traced.example, traced.original))
    row = min(selection.row if selection.row is not None else selection.step or 0, len(now) - 1)
    queries, keys = (labels_of(traced.original, name, axis)[1] for axis in ("query", "key"))
    place = f"{path}.{selection.head}.{row}"
    title = f"Edit row {row}: {queries[row].plain}"
    if len(keys) > LONGEST:
        message = f"This row has {len(keys):,} keys; rows of up to {LONGEST} can be edited."
        return RowEditor(title, place, "", (), False, "", "", "", "", (), message)
    allowed = allowed_keys(traced.original.trace, path, selection.head, row)
    base = _without(selection, place)
    units = units_of(now[row])
    bars = tuple(
        KeyBar(
            label,
            units[key],
            weight(float(before[row, key])),
            100 * float(before[row, key]),
            allowed[key],
            _with(base, place, tuple(UNITS * (key == other) for other in range(len(keys)))),
        )
        for key, label in enumerate(keys)
    )
    edited = any(
        isinstance(one, RowEdit) and f"{one.path}.{one.head}.{one.query}" == place for one in traced.interventions
    )
    return RowEditor(
        title,
        place,
        base.address,
        bars,
        edited,
        _with(base, place, tuple(int(seen) for seen in allowed)),
        _at_row(selection, row - 1) if row > 0 else "",
        _at_row(selection, row + 1) if row + 1 < len(now) else "",
        f"Next word at {steps_of(traced.original)[_step(selection, row)].plain}, before and after",
        _words(traced, _step(selection, row)),
        "",
    )


def _step(selection: Selection, row: int) -> int:
    """The step whose next word follows the row: in a decoder that of the row itself."""
    return row if selection.part == "decoder" else selection.step or 0


def _words(traced: TracedSelection, step: int) -> tuple[WordChange, ...]:
    if not traced.interventions or PROBABILITIES not in traced.original.trace:
        return ()
    return tuple(words_of(traced.original, traced.example, step, LISTED))


def _without(selection: Selection, place: str) -> Selection:
    kept = tuple(text for text in selection.interventions if not text.startswith(f"{place}:"))
    return replace(selection, interventions=kept)


def _with(base: Selection, place: str, units: tuple[int, ...]) -> str:
    text = f"{place}:{'-'.join(map(str, units))}"
    return replace(base, interventions=(*base.interventions, text)).address


def _at_row(selection: Selection, row: int) -> str:
    return replace(selection, row=row, column=selection.column or 0).address
