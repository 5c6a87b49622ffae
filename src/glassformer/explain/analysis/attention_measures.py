"""Measures of one attention matrix, ``[query, key]``: the spread of its rows, and their distance."""

import numpy as np
from numpy.typing import NDArray


def entropy(weights: NDArray[np.float64]) -> float:
    """Entropy of a row in nats, the mean over the rows."""
    return float((weights * -np.log(np.where(weights > 0, weights, 1.0))).sum(-1).mean()) + 0.0  # not −0


def distance(weights: NDArray[np.float64]) -> float:
    """Mean distance of a query from the keys that it looks at, in tokens."""
    queries, keys = np.indices(weights.shape)
    return float((weights * np.abs(queries - keys)).sum(-1).mean())
