"""Likelihood of text: perplexity, bits per character and byte, and a sliding window over texts of any length.

Losses are sums of negative log-likelihoods in nats.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from glassformer.errors import ConfigError, DataError
from glassformer.text import TextSize

Logits = Callable[[Int64[Tensor, "rows context"]], Float[Tensor, "rows context vocab"]]

SCORED_AT_ONCE = 512
"""Positions whose log-probabilities are held at a time."""


def perplexity(total_nll: float, tokens: int) -> float:
    """exp(``total_nll`` / ``tokens``); infinite past the largest float. Comparable between equal vocabularies only."""
    mean = _mean(total_nll, tokens, "tokens")
    try:
        return math.exp(mean)
    except OverflowError:
        return math.inf


def bits_per_character(total_nll: float, characters: int) -> float:
    """Bits per character of the text under the model; comparable across vocabularies.

    ``characters`` counts the decoded text of the predicted tokens. It excludes characters that the vocabulary drops,
    since the model does not predict them.
    """
    return _mean(total_nll, characters, "characters") / math.log(2)


def bits(total_nll: float, size: TextSize) -> dict[str, float]:
    """``bits_per_character`` and ``bits_per_byte`` of a text of ``size``; infinite if no token is text."""
    units = {"bits_per_character": size.characters, "bits_per_byte": size.bytes}
    return {name: bits_per_character(total_nll, count) if count else math.inf for name, count in units.items()}


def _mean(total_nll: float, count: int, unit: str) -> float:
    if count <= 0:
        raise DataError(f"{unit}={count}: a mean needs at least one; give a text that is not empty")
    return total_nll / count


@dataclass(frozen=True)
class TextLikelihood:
    """The summed negative log-likelihood of a text in nats, and what it is a mean over."""

    nll: float
    tokens: int  # predicted ones
    characters: int = 0  # of the decoded predicted tokens; 0: unknown
    bytes: int = 0  # of the same text in UTF-8; 0: unknown

    @property
    def nll_per_token(self) -> float:
        return self.nll / self.tokens

    @property
    def perplexity(self) -> float:
        return perplexity(self.nll, self.tokens)

    @property
    def bits_per_character(self) -> float:
        return bits_per_character(self.nll, self.characters)

    @property
    def bits_per_byte(self) -> float:
        return bits_per_character(self.nll, self.bytes)


@torch.inference_mode()
def sliding_likelihood(
    logits: Logits,
    ids: Sequence[int] | NDArray[np.integer],
    context: int,
    stride: int = 0,
    start_id: int | None = None,
    batch_tokens: int = 16384,
    device: torch.device | str = "cpu",
) -> TextLikelihood:
    """Every token of ``ids`` but the first is predicted once, from at least ``context - stride`` tokens before it,
    or from all there are. ``stride=0`` is ``context``: windows side by side, the cheapest and the most pessimistic.

    With ``start_id``, which is set before the text, the first token is predicted as well. ``logits`` is given rows of
    at most ``context`` tokens, ``batch_tokens`` in all.
    """
    stride = stride or context
    if not 1 <= stride <= context:
        raise ConfigError(f"stride={stride} is not from 1 to context={context}; choose it so that no token is left out")
    text = np.asarray(ids)
    if start_id is not None:
        text = np.concatenate([np.array([start_id], text.dtype), text])
    if len(text) < 2:
        raise DataError("a text of less than two tokens has nothing to predict; give a longer one, or a start token")
    begins, counted_from = _windows(len(text) - 1, context, stride)
    width = min(context, len(text) - 1)
    rows = max(1, batch_tokens // width)
    total = 0.0
    for first in range(0, len(begins), rows):
        windows = np.stack([text[i : i + width + 1] for i in begins[first : first + rows]]).astype(np.int64)
        batch = torch.from_numpy(windows).to(device)
        predicted = logits(batch[:, :-1])
        for row, targets, skipped in zip(predicted, batch[:, 1:], counted_from[first : first + rows], strict=True):
            total += _nll(row[skipped:], targets[skipped:])
    return TextLikelihood(total, len(text) - 1)


def _windows(predictions: int, context: int, stride: int) -> tuple[list[int], list[int]]:
    """Starts of windows, and the number of predictions in each that an earlier window has made.

    The last window ends with the text, and so sees more than the others rather than being shorter.
    """
    if predictions <= context:
        return [0], [0]
    begins = [*range(0, predictions - context, stride), predictions - context]
    ends = [begin + context for begin in begins]
    return begins, [end - begin for end, begin in zip([0, *ends], begins)]


def _nll(logits: Float[Tensor, "positions vocab"], targets: Int64[Tensor, " positions"]) -> float:
    precise = torch.promote_types(logits.dtype, torch.float32)
    parts = zip(logits.split(SCORED_AT_ONCE), targets.split(SCORED_AT_ONCE), strict=True)
    return sum(F.cross_entropy(part.to(precise), ids, reduction="sum").item() for part, ids in parts)
