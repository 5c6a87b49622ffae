"""Comparison of two computations: attention, next-token distributions and losses of matched tokens.

Two matrices have a difference only where their rows and columns mean the same thing. Tokens are matched in order, as
``diff`` matches lines; what has no counterpart is left out, and too few matches are an error.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.errors import DataError
from glassformer.explain.example import Example
from glassformer.explain.matrix import Axis, Label, Matrix, Scale

LEAST_MATCHED = 0.5
"""Least share of the longer side's tokens that have a counterpart, for a difference that means something."""


class Matched(NamedTuple):
    """Positions that correspond: ``first[i]`` of one side to ``second[i]`` of the other."""

    first: tuple[int, ...]
    second: tuple[int, ...]


@dataclass(frozen=True)
class MatrixComparison:
    """Two matrices, and the difference (second − first) of the rows and columns that both have."""

    first: Matrix
    second: Matrix
    difference: Matrix
    rows: Matched
    columns: Matched

    @property
    def unmatched(self) -> int:
        """Tokens of either side without a counterpart."""
        pairs = (
            (self.first.rows, self.second.rows, self.rows),
            (self.first.columns, self.second.columns, self.columns),
        )
        return sum(len(one) + len(other) - 2 * len(found.first) for one, other, found in pairs)


@dataclass(frozen=True)
class TokenLosses:
    """Negative log-likelihood of each predicted token, in nats."""

    labels: tuple[Label, ...]
    values: NDArray[np.float64]

    @property
    def mean(self) -> float:
        """Loss of the text in nats a token."""
        return float(self.values.mean())


def match_tokens(first: Sequence[str], second: Sequence[str], replaced: bool = True) -> Matched:
    """Tokens that correspond, in order. ``replaced``: also as many tokens that stand in the same place as others."""
    pairs: list[tuple[int, int]] = []
    for tag, start, end, other, other_end in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if tag == "equal" or (replaced and tag == "replace" and end - start == other_end - other):
            pairs += zip(range(start, end), range(other, other_end), strict=True)
    return Matched(tuple(one for one, _ in pairs), tuple(one for _, one in pairs))


def compare(first: Matrix, second: Matrix, replaced: bool = True) -> MatrixComparison:
    """The difference of two matrices with tokens as rows and columns; ``DataError`` if too few tokens correspond."""
    rows = _match_axis(first.rows, second.rows, replaced)
    columns = _match_axis(first.columns, second.columns, replaced)
    before = first.values[np.ix_(rows.first, columns.first)]
    after = second.values[np.ix_(rows.second, columns.second)]
    values = after - before
    difference = Matrix(
        values,
        _joined(first.rows, second.rows, rows),
        _joined(first.columns, second.columns, columns),
        "difference",
        Scale.signed(values),
    )
    return MatrixComparison(first, second, difference, rows, columns)


def attention_matrix(example: Example, path: str, head: int) -> Matrix:
    """Attention weights of one head, rows and columns labeled by tokens; ``DataError`` if it is missing."""
    name = f"{path}.weights"
    place = path.replace(".layers.", " layer ").replace(".", " ").replace("_", "-")
    if name not in example.trace:
        raise DataError(f"{place} is no attention of this model; choose one that both models have")
    every = example.trace[name][0]
    if head >= len(every):
        raise DataError(f"head {head} is not among the {len(every)} of {place}; choose a head that both models have")
    queries, keys = example.attention_sides(path.split(".")[0], path.rpartition(".")[2])
    rows, columns = Axis(f"{queries.name} (query)", queries.labels), Axis(f"{keys.name} (key)", keys.labels)
    return Matrix(every[head].double().cpu().numpy(), rows, columns, f"head {head}")


def variation(difference: NDArray[np.float64]) -> float:
    """Mean over the rows of the total variation distance ½ Σ|Δ|: 0 for equal distributions, 1 for disjoint ones."""
    return float(np.abs(difference).sum(-1).mean() / 2) if difference.size else 0.0


def token_losses(example: Example) -> TokenLosses | None:
    """Loss of each token of a translation or of a language model's text; None of another model."""
    name = "output_projection.log_probabilities"
    if name not in example.trace or not example.predicted_ids or example.task == "masked":
        return None
    rows = example.trace[name][0].double().cpu()[: len(example.predicted_ids)]
    predicted = torch.tensor(example.predicted_ids)[: len(rows)]
    values = -rows.gather(1, predicted[:, None])[:, 0].numpy()
    if example.translated:
        return TokenLosses(example.attention_sides("decoder", "cross_attention")[0].labels, values)
    return TokenLosses(example.sides[0].labels[1 : len(values) + 1], values[: len(example.sides[0].labels) - 1])


def same_vocabulary(first: Example, second: Example) -> bool:
    """True if both models number the same tokens in the same way."""
    pairs = [(one.tokenizer, other.tokenizer) for one, other in zip(first.sides, second.sides)]
    if len(first.sides) != len(second.sides):
        return False
    for one, other in pairs:
        if one is other:
            continue
        if one is None or other is None or one.vocab_size != other.vocab_size:
            return False
        if one.tokens(range(one.vocab_size)) != other.tokens(range(other.vocab_size)):
            return False
    return True


def _match_axis(first: Axis, second: Axis, replaced: bool) -> Matched:
    found = match_tokens(first.texts, second.texts, replaced)
    longest = max(len(first), len(second))
    if len(found.first) < LEAST_MATCHED * longest:
        title = first.title.partition(" (")[0]
        raise DataError(
            f"only {len(found.first)} of {longest} tokens of the {title} correspond; "
            "a difference needs the same words in the same order on both sides"
        )
    return found


def _joined(first: Axis, second: Axis, found: Matched) -> Axis:
    """Labels of the matched positions; two different tokens are both named."""
    labels = []
    for one, other in zip(found.first, found.second, strict=True):
        label, text = first.labels[one], second.labels[other].text
        same = label.text == text
        labels.append(label if same else Label(f"{label.text} / {text}", label.side, label.position))
    return Axis(second.title, tuple(labels))
