"""Text to vectors: words, merges one at a time, ids, the row of the embedding matrix, and the position."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from glassformer.explain.example import Example, Side
from glassformer.explain.formula.dataflow import embeddings
from glassformer.explain.matrix import Label, Scale
from glassformer.explain.page.sheets import shade_class
from glassformer.layers.embedding import TokenEmbedding
from glassformer.text.decimals import aligned, column_digits, decimal
from glassformer.text.tokenizer import Segmentation
from glassformer.web.explorer.panels.position_curve import PositionCurve, curve_of, rows_of
from glassformer.web.explorer.panels.wording import TensorText, tensor_text
from glassformer.web.explorer.places import select
from glassformer.web.explorer.selection import Selection

TAPS = ("tokens", "scaled", "encoding", "positioned", "segment", "segmented", "normed")
"""Tensors of an embedding, in the order in which they are computed."""
N_DIMENSIONS = 8
"""Dimensions of a vector that are written side by side."""
MAX_WORDS = 160
"""Words that are written; those around the chosen one if there are more."""
MAX_MERGES = 64
"""Rows of the table of merges."""
USUAL_DIMENSION = 4


@dataclass(frozen=True)
class TokenChip:
    """A token of a word."""

    label: Label
    id: int
    address: str
    current: bool


@dataclass(frozen=True)
class CutWord:
    """A word as it was before the merges, and its tokens."""

    text: str
    tokens: tuple[TokenChip, ...]
    current: bool


@dataclass(frozen=True)
class Symbol:
    text: str
    new: bool


@dataclass(frozen=True)
class MergeRow:
    number: int
    rank: str
    left: str
    right: str
    symbols: tuple[str, ...]
    address: str
    current: bool


@dataclass(frozen=True)
class MergeStepper:
    """The word after ``number`` of ``count`` merges."""

    number: int
    count: int
    symbols: tuple[Symbol, ...]
    text: str
    before: str
    after: str
    rows: tuple[MergeRow, ...]
    note: str
    passed: bool
    """True if the merges end with the tokens that the model reads."""


@dataclass(frozen=True)
class VectorCell:
    value: float
    text: str
    shade: str
    address: str
    current: bool


@dataclass(frozen=True)
class VectorRow:
    """A tensor at the chosen position: some of its numbers."""

    name: str
    words: TensorText
    address: str
    cells: tuple[VectorCell, ...]


@dataclass(frozen=True)
class OneHot:
    """The token's number among those of the vocabulary: entries around it, each with its 0 or 1."""

    entries: tuple[tuple[str, str, bool], ...]
    address: str
    share: float
    """Place of the 1, from 0 to 100."""


@dataclass(frozen=True)
class VectorsView:
    sides: tuple[tuple[str, str, bool], ...]
    text: str
    normalized: str
    kind: str
    words: tuple[CutWord, ...]
    limit: str
    stepper: MergeStepper | None
    token: Label
    summary: str
    one_hot: OneHot
    rows: tuple[VectorRow, ...]
    columns: tuple[tuple[int, str, bool], ...]
    before: str
    after: str
    size: int
    place: Selection
    curve: PositionCurve | None


def has_vectors(example: Example) -> bool:
    """True if the example reads tokens."""
    paths = embeddings(example.model).values()
    return all(isinstance(example.model.get_submodule(path), TokenEmbedding) for path in paths)


def vectors_of(example: Example, selection: Selection, notes: list[str]) -> VectorsView:
    """The panel; ``notes`` gets a line for each value of the address that is not there."""
    number = _side_number(example, selection, notes)
    side = example.sides[number]
    stack, path = list(embeddings(example.model).items())[number if example.translated else 0]
    embedding: Any = example.model.get_submodule(path)
    cuts = side.vocabulary.segmentations(side.ids)
    owners = [place for place, cut in enumerate(cuts) for _ in cut.ids]
    first = next((place for place, owner in enumerate(owners) if cuts[owner].merges), 0)
    chosen = first if selection.position is None else selection.position
    position = _nearest("token", chosen, len(side.ids), notes)
    d_model = embedding.weight.size(1)
    usual = min(USUAL_DIMENSION, d_model - 1)
    dimension = _nearest("dimension", usual if selection.dimension is None else selection.dimension, d_model, notes)
    place = replace(selection, side=side.name, position=position, dimension=dimension, merge=None)
    cut = cuts[owners[position]]
    words, limit = _words(side, cuts, place)
    names = [name for name in (f"{path}.{tap}" for tap in TAPS) if name in example.trace]
    names = [name for name in names if embedding.scale != 1.0 or not name.endswith(".scaled")]
    return VectorsView(
        tuple(_side_link(one, place) for one in example.sides),
        side.text,
        side.vocabulary.normalize(side.text),
        side.vocabulary.kind,
        words,
        limit,
        _stepper(side, cut, replace(place, merge=selection.merge), notes),
        side.labels[position],
        _summary(side, position, embedding, f"{path}.encoding" in example.trace),
        _one_hot(example, side, place, path),
        tuple(_row(example, place, name) for name in names),
        tuple((one, replace(place, dimension=one).address, one == dimension) for one in _window(dimension, d_model)),
        replace(place, dimension=max(dimension - N_DIMENSIONS, 0)).address,
        replace(place, dimension=min(dimension + N_DIMENSIONS, d_model - 1)).address,
        d_model,
        place,
        curve_of(example, place, stack, path),
    )


def _side_number(example: Example, selection: Selection, notes: list[str]) -> int:
    names = [side.name for side in example.sides]
    if selection.side in names:
        return names.index(selection.side)
    if selection.side:
        notes.append(f"There is no input {selection.side[:40]!r} here; this is the {names[0]}.")
    return 0


def _nearest(axis: str, value: int, count: int, notes: list[str]) -> int:
    if 0 <= value < count:
        return value
    nearest = min(max(value, 0), count - 1)
    notes.append(f"{axis} {value:,} is outside 0 to {count - 1:,}; this is {axis} {nearest:,}.")
    return nearest


def _side_link(side: Side, place: Selection) -> tuple[str, str, bool]:
    address = replace(place, side=side.name, position=None, merge=None).address
    return side.name, address, side.name == place.side


def _words(side: Side, cuts: Sequence[Segmentation], place: Selection) -> tuple[tuple[CutWord, ...], str]:
    """The words around the chosen token, and a note if others are left out."""
    words, start = [], 0
    labels = side.labels
    for cut in cuts:
        positions = range(start, start + len(cut.ids))
        chips = tuple(
            TokenChip(labels[one], int(side.ids[one]), replace(place, position=one).address, one == place.position)
            for one in positions
        )
        words.append(CutWord("".join(cut.symbols), chips, place.position in positions))
        start += len(cut.ids)
    if len(words) <= MAX_WORDS:
        return tuple(words), ""
    middle = next(number for number, word in enumerate(words) if word.current)
    begin = min(max(middle - MAX_WORDS // 2, 0), len(words) - MAX_WORDS)
    limit = f"Words {begin} to {begin + MAX_WORDS - 1} of {len(words):,} are written here."
    return tuple(words[begin : begin + MAX_WORDS]), limit


def _stepper(side: Side, cut: Segmentation, place: Selection, notes: list[str]) -> MergeStepper | None:
    """The merges of one word; None if its token is not made by merges."""
    count = len(cut.merges)
    if not count:
        if place.merge:
            notes.append("This token has no merges.")
        return None
    number = count if place.merge is None else _nearest("merge", place.merge, count + 1, notes)
    states = [cut.symbols, *(merge.symbols for merge in cut.merges)]
    new = _first_difference(states[number - 1], states[number]) if number else -1
    rows = tuple(
        MergeRow(
            at,
            f"{merge.rank:,}",
            merge.left,
            merge.right,
            tuple(merge.symbols),
            replace(place, merge=at).address,
            at == number,
        )
        for at, merge in enumerate(cut.merges[:MAX_MERGES], start=1)
    )
    return MergeStepper(
        number,
        count,
        tuple(Symbol(text, at == new) for at, text in enumerate(states[number])),
        _merge_text(cut, number),
        replace(place, merge=number - 1).address if number else "",
        replace(place, merge=number + 1).address if number < count else "",
        rows,
        f"The first {MAX_MERGES} of {count:,} merges." if count > MAX_MERGES else "",
        states[-1] == side.vocabulary.tokens(cut.ids),
    )


def _first_difference(before: Sequence[str], after: Sequence[str]) -> int:
    return next(place for place, text in enumerate(after) if text != before[place])


def _merge_text(cut: Segmentation, number: int) -> str:
    if not number:
        return f"Before the merges: {len(cut.symbols)} symbols."
    merge = cut.merges[number - 1]
    left, right = Label(merge.left, "text").plain, Label(merge.right, "text").plain
    return f"Merge {number} of {len(cut.merges)}, of rank {merge.rank:,}: {left} and {right} become one symbol."


def _summary(side: Side, position: int, embedding: Any, added: bool) -> str:
    rows, width = embedding.weight.shape
    scale = "" if embedding.scale == 1.0 else f", times √{width} = {decimal(float(embedding.scale))}"
    plus = f", plus the vector of position {position}" if added else ""
    label = side.labels[position].plain
    return f"{label} is number {int(side.ids[position]):,} of {rows:,}: that row of the matrix E{scale}{plus}."


def _one_hot(example: Example, side: Side, place: Selection, path: str) -> OneHot:
    chosen, size = int(side.ids[place.position or 0]), side.vocabulary.vocab_size
    near = range(max(chosen - 2, 0), min(chosen + 3, size))
    labels = [Label(text).short for text in side.vocabulary.tokens(near)]
    entries = tuple((f"{one:,}", label, one == chosen) for one, label in zip(near, labels, strict=True))
    index = {"position": place.position or 0, "vocab": chosen}
    address = select(place, example, f"{path}.one_hot", index).address
    return OneHot(entries, address, 100 * chosen / max(size - 1, 1))


def _window(dimension: int, size: int) -> range:
    start = dimension // N_DIMENSIONS * N_DIMENSIONS
    return range(start, min(start + N_DIMENSIONS, size))


def _row(example: Example, place: Selection, name: str) -> VectorRow:
    values = rows_of(example, name)[place.position or 0]
    scale = Scale.signed(values.numpy())
    digits = column_digits(scale.high)
    cells = []
    for one in _window(place.dimension or 0, len(values)):
        value = float(values[one])
        index = {"position": place.position or 0, "d_model": one}
        address = select(place, example, name, index).address
        cells.append(
            VectorCell(value, aligned(value, digits), shade_class(value, scale), address, one == place.dimension)
        )
    path, _, tap = name.rpartition(".")
    words = tensor_text(tap, path, example.model.get_submodule(path))
    return VectorRow(name, words, select(place, example, name).address, tuple(cells))
