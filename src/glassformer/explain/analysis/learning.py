"""One attention over the course of a training: what each checkpoint makes of the same text.

Word alignment is read from cross-attention in two ways, as in ``predict.alignment``: naive, at the steps that predict a
word, and shifted, at those that read it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.alignment.attention import strongest_links, word_weights
from glassformer.alignment.links import Links, alignment_error_rate
from glassformer.errors import DataError
from glassformer.explain.analysis.comparison import token_losses
from glassformer.explain.example import Example

READINGS = ("naive", "shifted")


@dataclass(frozen=True)
class HeadSnapshot:
    """One attention of one checkpoint. ``words`` is [reading, head, target word, source word]; None without words."""

    weights: NDArray[np.float64]
    """[head, query, key]"""
    words: NDArray[np.float64] | None
    loss: float | None
    """Negative log-likelihood of the text, nats a token."""

    @property
    def entropy(self) -> NDArray[np.float64]:
        """Entropy of each head in nats, the mean over its rows."""
        logs = -np.log(np.where(self.weights > 0, self.weights, 1.0))
        result: NDArray[np.float64] = (self.weights * logs).sum(-1).mean(-1)
        return result

    def links(self, head: int, reading: int) -> Links:
        """(source word, target word): for each target word the source word with most of its attention."""
        assert self.words is not None
        return frozenset(strongest_links(torch.from_numpy(self.words[reading, head])))

    def on(self, links: Links, head: int, reading: int) -> float:
        """Weight on the linked source words, the mean over the target words that have links."""
        assert self.words is not None
        rows: dict[int, float] = {}
        for source, target in links:
            rows[target] = rows.get(target, 0.0) + float(self.words[reading, head, target, source])
        return sum(rows.values()) / len(rows) if rows else 0.0

    def error_rate(self, links: Links, head: int, reading: int) -> float:
        """AER of the head's links, ``links`` being the right ones."""
        return alignment_error_rate([links], [links], [self.links(head, reading)])


def snapshot(example: Example, path: str) -> HeadSnapshot:
    """The attention at ``path``; ``DataError`` if the model has none there."""
    name = f"{path}.weights"
    if name not in example.trace:
        raise DataError(f"{path} is no attention of this model; choose one that every checkpoint has")
    weights = example.trace[name][0].double().cpu()
    losses = token_losses(example)
    return HeadSnapshot(weights.numpy(), _words(example, path, weights), losses.mean if losses else None)


def best_reading(last: HeadSnapshot, links: Links, head: int) -> int:
    """The reading with the lower AER of ``head``, naive if both are equal."""
    rates = [last.error_rate(links, head, reading) for reading in range(len(READINGS))]
    return rates.index(min(rates))


def best_head(snapshots: Sequence[HeadSnapshot], links: Links | None) -> int:
    """The head with the lowest final AER; without gold links, the head whose entropy decreases most."""
    last = snapshots[-1]
    heads = range(len(last.weights))
    if links is not None and last.words is not None:
        return min(heads, key=lambda head: min(last.error_rate(links, head, reading) for reading in range(2)))
    falls = snapshots[0].entropy - last.entropy if len(snapshots[0].weights) == len(last.weights) else -last.entropy
    return int(falls.argmax())


def _words(example: Example, path: str, weights: torch.Tensor) -> NDArray[np.float64] | None:
    if not example.translated or not path.endswith("cross_attention") or not example.target.strip():
        return None
    source, target = example.sides
    source_ids, target_ids = list(source.ids[:-1]), list(target.ids[1:])
    if not source_ids or not target_ids:
        return None
    words = source.vocabulary.word_of(source_ids), target.vocabulary.word_of(target_ids)
    readings = [word_weights(weights, *words, shifted=bool(reading)) for reading in range(len(READINGS))]
    return torch.stack(readings).numpy()
