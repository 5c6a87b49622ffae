"""The one mask convention: boolean, True = may be seen, broadcastable to ``batch heads query key``.

Section 3.2.3 prevents leftward information flow by "setting to −∞ all values which correspond to illegal connections".
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def causal_mask(query: int, key: int, device: torch.device | None = None) -> Bool[Tensor, "1 1 query key"]:
    """Each query sees itself and what is before it.

    The last query is aligned with the last key, as when the first ``key - query`` positions are already cached.
    """
    return torch.ones(query, key, dtype=torch.bool, device=device).tril(key - query)[None, None]


def padding_mask(ids: Int[Tensor, "batch length"], pad_id: int) -> Bool[Tensor, "batch length"]:
    """True where ``ids`` holds a token and not padding."""
    return ids != pad_id


def over_keys(visible: Bool[Tensor, "batch key"] | None) -> Bool[Tensor, "batch 1 1 key"] | None:
    """A padding mask as attention takes it: no query sees a padded key."""
    return None if visible is None else visible[:, None, None, :]
