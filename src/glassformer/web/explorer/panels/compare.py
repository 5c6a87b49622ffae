"""This view beside another: two checkpoints, runs or sentences, or the model with and without some heads."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glassformer.errors import DataError
from glassformer.explain.analysis.comparison import (
    MatrixComparison,
    TokenLosses,
    attention_matrix,
    compare,
    match_tokens,
    same_vocabulary,
    token_losses,
    variation,
)
from glassformer.explain.example import Example
from glassformer.explain.matrix import Label, Matrix, Scale
from glassformer.explain.page.sheets import shade_class
from glassformer.text.decimals import aligned
from glassformer.web.explorer.panels.head_picker import PickerRow, attention_paths, chosen_head, picker_rows
from glassformer.web.explorer.panels.heat_map import HeatMap, heat_map
from glassformer.web.explorer.places import labels_of
from glassformer.web.explorer.selection import Selection

LISTED = 8
"""Next words that are listed."""


@dataclass(frozen=True)
class WordPair:
    """A number of both sides; bars are in percent of the largest."""

    label: Label
    first: str
    second: str
    change: str
    first_part: float
    second_part: float
    shade: str
    value: float


@dataclass(frozen=True)
class CompareView:
    """``first`` is the other side, ``second`` this view, and differences are second − first."""

    first: str
    second: str
    attention: str
    heads: tuple[PickerRow, ...]
    maps: tuple[HeatMap, ...]
    refusal: str
    summary: str
    unmatched: str
    scale: str
    words: tuple[WordPair, ...]
    words_title: str
    losses: tuple[WordPair, ...]
    loss: str


def compare_of(one: Example, other: Example, names: tuple[str, str], selection: Selection) -> CompareView:
    """The panel of two examples with their names; ``other`` is that of this view, which is at ``selection``."""
    same = same_vocabulary(one, other)
    distances = {path: _distances(one, other, path, same) for path in attention_paths(other)}
    path, head = chosen_head(other, selection, distances)
    found, maps, refusal = _attention(one, other, (path, head), names, same)
    rows = picker_rows(other, selection, (path, head), distances)
    words, words_title = _words(one, other, selection.step or 0, same)
    losses, loss = _losses(one, other, names, same)
    unmatched = found.unmatched if found else 0
    return CompareView(
        *names,
        f"{path.replace('.layers.', ' layer ').replace('.', ' ').replace('_', '-')}, head {head}",
        tuple(rows),
        tuple(maps),
        refusal,
        _summary(found, names) if found else "",
        f"{unmatched} {'token has' if unmatched == 1 else 'tokens have'} no counterpart and no difference."
        if unmatched
        else "",
        aligned(found.difference.scale.high, 2) if found else "",
        tuple(words),
        words_title,
        tuple(losses),
        loss,
    )


def _distances(first: Example, second: Example, path: str, same: bool) -> list[float | None]:
    """Distance of each head, the mean total variation of its rows; None where there is no difference."""
    every = second.trace[f"{path}.weights"][0].double().cpu().numpy()
    try:
        found = compare(attention_matrix(first, path, 0), attention_matrix(second, path, 0), same)
    except DataError:
        return [None] * len(every)
    others = first.trace[f"{path}.weights"][0].double().cpu().numpy()
    before, after = np.ix_(found.rows.first, found.columns.first), np.ix_(found.rows.second, found.columns.second)
    both = min(len(every), len(others))
    distances = [variation(every[head][after] - others[head][before]) for head in range(both)]
    return [*distances, *[None] * (len(every) - both)]


def _attention(
    first: Example, second: Example, place: tuple[str, int], names: tuple[str, str], same: bool
) -> tuple[MatrixComparison | None, list[HeatMap], str]:
    here = attention_matrix(second, *place)
    try:
        there = attention_matrix(first, *place)
    except DataError as error:
        return None, [heat_map(names[1], here, _largest(here))], str(error)
    maps = [heat_map(names[0], there, _largest(there)), heat_map(names[1], here, _largest(here))]
    try:
        found = compare(there, here, same)
    except DataError as error:
        return None, maps, str(error)
    title = f"{names[1]} − {names[0]}" if max(map(len, names)) < 16 else "difference"
    return found, [*maps, heat_map(title, found.difference, _change(found.difference, names))], ""


def _largest(matrix: Matrix) -> str:
    row, column = divmod(int(matrix.values.argmax()), matrix.values.shape[1])
    place = f"{matrix.rows.labels[row].plain} attends to {matrix.columns.labels[column].plain}"
    return f"The largest weight is {aligned(float(matrix.values[row, column]), 2)}: {place}."


def _change(matrix: Matrix, names: tuple[str, str]) -> str:
    values = matrix.values
    row, column = divmod(int(np.abs(values).argmax()), values.shape[1])
    value = float(values[row, column])
    place = f"{matrix.rows.labels[row].plain} on {matrix.columns.labels[column].plain}"
    if not value:
        return "Both sides are equal here."
    return f"The largest difference is {aligned(value, 2)}: {place}, {'more' if value > 0 else 'less'} in {names[1]}."


def _summary(found: MatrixComparison, names: tuple[str, str]) -> str:
    distance = variation(found.difference.values)
    return f"{_change(found.difference, names)} On average {distance:.0%} of a row's weight is elsewhere."


def _words(first: Example, second: Example, step: int, same: bool) -> tuple[list[WordPair], str]:
    """The most probable words of the step on either side, or classes, by their larger probability."""
    name = "output_projection.probabilities"
    if name not in first.trace or name not in second.trace or second.task == "masked":
        return [], ""
    if second.trace[name].ndim == 2:  # classes of the whole input
        return _most_probable(first, second, (), (), same), "Classes"
    read_there, read_here = _read(first), _read(second)
    pairs = match_tokens(read_there, read_here, same)
    there = dict(zip(pairs.second, pairs.first, strict=True)).get(step)
    if there is None:
        return [], ""
    words = _most_probable(first, second, (there,), (step,), same)
    return words, f"Next word after {Label(read_here[step], 'target').plain}"


def _most_probable(
    first: Example, second: Example, there: tuple[int, ...], here: tuple[int, ...], same: bool
) -> list[WordPair]:
    """The most probable words, or classes, at a position of either side."""
    name = "output_projection.probabilities"
    before, after = (one.trace[name][(0, *at)].double().cpu().numpy() for one, at in ((first, there), (second, here)))
    labels = [labels_of(one, name, one.trace.axes(name)[-1])[1] for one in (first, second)]
    if not same:
        known = {label.text: float(value) for label, value in zip(labels[0], before, strict=True)}
        before = np.array([known.get(label.text, 0.0) for label in labels[1]])
    order = np.argsort(-np.maximum(before, after), kind="stable")[:LISTED]
    return _pairs([(labels[1][index], float(before[index]), float(after[index])) for index in order], 1.0, 4)


def _read(example: Example) -> list[str]:
    """The tokens at whose positions the model predicts the next one."""
    return list(example.sides[-1].tokens)


def _losses(first: Example, second: Example, names: tuple[str, str], same: bool) -> tuple[list[WordPair], str]:
    one, other = token_losses(first), token_losses(second)
    if one is None or other is None:
        return [], ""
    pairs = match_tokens([label.text for label in one.labels], [label.text for label in other.labels], same)
    values = [
        (other.labels[there], float(one.values[here]), float(other.values[there]))
        for here, there in zip(*pairs, strict=True)
    ]
    largest = max((max(pair[1:]) for pair in values), default=1.0)
    return _pairs(values, largest, 3), _loss_text(one, other, names)


def _loss_text(first: TokenLosses, second: TokenLosses, names: tuple[str, str]) -> str:
    change = second.mean - first.mean
    more = "equal" if not round(change, 3) else f"{aligned(abs(change), 3)} {'more' if change > 0 else 'less'}"
    return f"{names[0]}: {aligned(first.mean, 3)}; {names[1]}: {aligned(second.mean, 3)} nats a token, {more}."


def _pairs(values: Sequence[tuple[Label, float, float]], largest: float, digits: int) -> list[WordPair]:
    changes = np.array([after - before for _, before, after in values] or [0.0])
    scale = Scale.signed(changes)
    return [
        WordPair(
            label,
            aligned(before, digits),
            aligned(after, digits),
            ("+" if after > before else "") + aligned(after - before, digits),
            100 * before / (largest or 1.0),
            100 * after / (largest or 1.0),
            shade_class(after - before, scale),
            after - before,
        )
        for label, before, after in values
    ]
