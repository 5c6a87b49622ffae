"""A label, and how sure a model is of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Prediction:
    """``probabilities`` by label, the most probable first."""

    probabilities: dict[str, float]

    @property
    def label(self) -> str:
        return next(iter(self.probabilities))

    @property
    def probability(self) -> float:
        return self.probabilities[self.label]


def predictions(logits: Float[Tensor, "rows classes"], labels: Sequence[str]) -> list[Prediction]:
    """The softmax of each row; equals in the order of ``labels``."""
    values, order = torch.sort(logits.float().softmax(-1), dim=-1, descending=True, stable=True)
    rows = zip(values.tolist(), order.tolist(), strict=True)
    return [Prediction({labels[index]: value for value, index in zip(*row, strict=True)}) for row in rows]
