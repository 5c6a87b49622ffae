"""The one mask convention: boolean, True = may be seen, broadcastable to ``batch heads query key``.

What is a token and what padding is told by a boolean, or, where a row holds several sentences, by the number of its
sentence: from 1, 0 is padding (``Sentences``).

Section 3.2.3 prevents leftward information flow by "setting to −∞ all values which correspond to illegal connections".
"""

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

Sentences = Bool[Tensor, "_ _"] | Int[Tensor, "_ _"]
"""True where there is a token, or the number of the sentence that the token belongs to."""


def causal_mask(query: int, key: int, device: torch.device | None = None) -> Bool[Tensor, "1 1 query key"]:
    """Each query sees itself and what is before it.

    The last query is aligned with the last key, as when the first ``key - query`` positions are already cached.
    """
    return torch.ones(query, key, dtype=torch.bool, device=device).tril(key - query)[None, None]


def over_keys(keys: Sentences | None, queries: Sentences | None = None) -> Bool[Tensor, "batch 1 #query key"] | None:
    """What attention may see: no padded key; where sentences are numbered, those of the query's own sentence.

    (A padded query then sees padded keys: nobody reads what becomes of it.)
    """
    if keys is None:
        return None
    if keys.dtype == torch.bool:
        return keys[:, None, None, :]
    if queries is None or queries.dtype == torch.bool:
        raise ValueError("the keys' sentences are numbered and the queries' are not; number both")
    return same_sentence(queries, keys)


def same_sentence(queries: Sentences, keys: Sentences) -> Bool[Tensor, "batch 1 query key"]:
    """Where the numbers are the same."""
    return (queries[:, :, None] == keys[:, None, :])[:, None]


def positions_within(sentences: Int[Tensor, "batch length"]) -> Int[Tensor, "batch length"]:
    """The position of each token in its own sentence, from 0."""
    index = torch.arange(sentences.size(1), device=sentences.device).expand_as(sentences)
    begins = sentences.diff(dim=1, prepend=sentences.new_full((sentences.size(0), 1), -1)) != 0
    return index - index.where(begins, 0).cummax(1).values


def chosen(
    x: Shaped[Tensor, "batch length ..."], which: Bool[Tensor, "batch length"], count: int
) -> Shaped[Tensor, "chosen ..."]:
    """``x[which]``. How many that are, the batch knows; a GPU would have to be waited for."""
    return x.flatten(0, 1).index_select(0, which.flatten().nonzero_static(size=count).squeeze(1))
