"""The atlas of heads: a table of what every head does over several sentences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from glassformer.explain.analysis.head_atlas import HeadRecord
from glassformer.text.decimals import aligned
from glassformer.web.explorer.panels.alignment import percent
from glassformer.web.explorer.places import split_name
from glassformer.web.explorer.selection import Selection

Measure = Callable[[HeadRecord], float | None]

COLUMNS: dict[str, tuple[str, str, Measure]] = {
    "entropy": ("entropy", "nats, mean over queries", lambda one: one.entropy),
    "distance": ("distance", "tokens from query to key", lambda one: one.distance),
    "importance": ("importance", "|∂L/∂ξ|, 10⁻³ nats a token", lambda one: one.importance),
    "naive": ("AER, naive", "against gold links", lambda one: one.naive_error_rate),
    "shifted": ("AER, shifted", "against gold links", lambda one: one.shifted_error_rate),
}
"""Name in the address → heading, unit and measure."""


@dataclass(frozen=True)
class AtlasColumn:
    """``sorted`` is ``ascending``, ``descending`` or ``none``, as in ``aria-sort``; ``address`` sorts by it."""

    name: str
    title: str
    unit: str
    sorted: str
    address: str


@dataclass(frozen=True)
class AtlasCell:
    text: str
    share: float
    """Length of its bar, from 0 to 100."""
    value: float | None


@dataclass(frozen=True)
class AtlasRow:
    name: str
    address: str
    key: str
    cells: tuple[AtlasCell, ...]


@dataclass(frozen=True)
class AtlasState:
    """State of the job that measures the heads."""

    state: str
    done: int
    count: int
    resting: bool
    skipped: tuple[str, ...]
    origin: str
    aligned: int


@dataclass(frozen=True)
class AtlasView:
    state: AtlasState
    account: str
    summary: str
    columns: tuple[AtlasColumn, ...]
    rows: tuple[AtlasRow, ...]
    sentences: int
    most: int
    texts: str
    missing: str
    """Reasons for columns that are left out."""


def atlas_of(
    model: object, records: Sequence[HeadRecord], state: AtlasState, selection: Selection, notes: list[str]
) -> AtlasView:
    """The panel; ``selection.sentences`` is the number that is measured at most."""
    columns = {name: column for name, column in COLUMNS.items() if any(column[2](one) is not None for one in records)}
    name, descending = _order(selection.order, columns, notes if records else [])
    chosen = list(records)
    if name:
        measure = columns[name][2]
        unmeasured = float("-inf") if descending else float("inf")
        chosen.sort(key=lambda one: _number(measure(one), unmeasured), reverse=descending)
    largest = {key: max((column[2](one) or 0.0 for one in records), default=0.0) for key, column in columns.items()}
    rows = tuple(
        AtlasRow(
            _head_name(one),
            _head_address(model, selection, one),
            f"{one.path}.{one.head}",
            tuple(_cell(key, column[2](one), largest[key]) for key, column in columns.items()),
        )
        for one in chosen
    )
    return AtlasView(
        state,
        _account(state),
        _summary(records),
        tuple(_column(key, columns[key], selection, (name, descending)) for key in columns),
        rows,
        selection.sentences or state.count,
        state.count,
        selection.texts,
        _missing(records, columns),
    )


def _order(text: str, columns: dict[str, tuple[str, str, Measure]], notes: list[str]) -> tuple[str, bool]:
    """Column and direction of an address; the order of the layers if there is no such column."""
    name, descending = text.removeprefix("-"), text.startswith("-")
    if name and name not in columns:
        if notes is not None and name not in COLUMNS:
            notes.append(f"order={text[:40]!r} is no column; choose from {', '.join(columns)}.")
        return "", False
    return name, descending


def _number(value: float | None, other: float) -> float:
    return other if value is None else value


def _column(key: str, column: tuple[str, str, Measure], selection: Selection, order: tuple[str, bool]) -> AtlasColumn:
    """A first click sorts from low to high, a second from high to low, a third not at all."""
    current = ("descending" if order[1] else "ascending") if order[0] == key else "none"
    following = {"none": key, "ascending": f"-{key}", "descending": ""}[current]
    return AtlasColumn(key, column[0], column[1], current, replace(selection, order=following).address)


def _cell(key: str, value: float | None, largest: float) -> AtlasCell:
    if value is None:
        return AtlasCell("–", 0.0, None)
    if key in ("naive", "shifted"):
        return AtlasCell(percent(value), 100 * value, value)
    text = aligned(1000 * value, 2) if key == "importance" else aligned(value, 2)
    return AtlasCell(text, 100 * value / largest if largest else 0.0, value)


def _head_name(one: HeadRecord) -> str:
    place = one.path.replace(".layers.", " layer ").replace(".", " ").replace("_", "-")
    return f"{place}, head {one.head}"


def _head_address(model: object, selection: Selection, one: HeadRecord) -> str:
    part, layer, sublayer, _ = split_name(model, f"{one.path}.weights")
    return replace(selection.at_module(part, layer, sublayer), head=one.head).address


def _account(state: AtlasState) -> str:
    sentences = f"{state.count:,} {'sentence' if state.count == 1 else 'sentences'} of {state.origin}"
    if state.state == "done":
        return f"{sentences}."
    of = f"{state.done:,} of {sentences}"
    if state.state == "cancelled":
        return f"Stopped after {of}."
    if state.state == "expired":
        return f"Ended after {of}: the time limit of a job was reached. Choose fewer sentences."
    return f"{of} …"


def _summary(records: Sequence[HeadRecord]) -> str:
    """The head that matters most, and the one that aligns best."""
    parts = []
    if any(one.importance is not None for one in records):
        most = max(records, key=lambda one: one.importance or 0.0)
        parts.append(f"Most important: {_head_name(most)}.")
    rates = [
        (rate, one, reading)
        for one in records
        for reading, rate in (("naive", one.naive_error_rate), ("shifted", one.shifted_error_rate))
        if rate is not None
    ]
    if rates:
        rate, one, reading = min(rates, key=lambda row: row[0])
        parts.append(f"Aligns best: {_head_name(one)}, {reading}, AER {percent(rate)}.")
    return " ".join(parts)


def _missing(records: Sequence[HeadRecord], columns: dict[str, tuple[str, str, Measure]]) -> str:
    if not records:
        return ""
    parts = []
    if "importance" not in columns:
        parts.append("Importance needs a model that predicts tokens.")
    if "naive" not in columns and any(one.path.endswith("cross_attention") for one in records):
        parts.append("Error rates need gold links: a file with the suffix .align beside the validation text.")
    return " ".join(parts)
