"""How probable a model finds a text. Losses are summed negative log-likelihoods in nats."""

import math

from glassformer.errors import DataError
from glassformer.text import TextSize


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
