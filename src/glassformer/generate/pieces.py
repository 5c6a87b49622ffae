"""Hypotheses of a text that was decoded in pieces: which of each piece belong together, and all of them as one."""

from collections.abc import Sequence
from dataclasses import replace

from glassformer.generate.config import DecodingConfig, Hypothesis, length_penalty


def best_choices(pieces: Sequence[Sequence[Hypothesis]], config: DecodingConfig) -> list[list[int]]:
    """For each of the ``n_best`` hypotheses of the whole, best first, which hypothesis of each piece it consists of.

    Pieces are independent, so that their log-probabilities add up. Drawn hypotheses have no order: the first whole
    consists of the first of each piece, the second of the second.
    """
    if config.sample:
        return [[rank] * len(pieces) for rank in range(config.n_best)]
    chosen: list[tuple[float, int, list[int]]] = [(0.0, 0, [])]
    for found in pieces:
        longer = [
            (total + one.log_prob, length + len(one.token_log_probs), [*ranks, rank])
            for total, length, ranks in chosen
            for rank, one in enumerate(found)
        ]
        longer.sort(key=lambda one: -_score(one[0], one[1], config))
        chosen = longer[: config.n_best]
    return [ranks for _, _, ranks in chosen]


def united(pieces: Sequence[Hypothesis], end: int, config: DecodingConfig) -> Hypothesis:
    """The tokens of all ``pieces``, each but the last with its end token, where one was predicted; scored as one."""
    tokens: list[int] = []
    for one in pieces[:-1]:
        tokens += [*one.tokens, *[end] * (len(one.token_log_probs) - len(one.tokens))]
    log_probs = [value for one in pieces for value in one.token_log_probs]
    total = sum(one.log_prob for one in pieces)
    return replace(
        pieces[-1],
        tokens=tokens + pieces[-1].tokens,
        score=_score(total, len(log_probs), config),
        log_prob=total,
        token_log_probs=log_probs,
        finish_reason="length" if any(one.finish_reason == "length" for one in pieces) else "end",
    )


def _score(log_prob: float, length: int, config: DecodingConfig) -> float:
    return log_prob / length_penalty(config.length_penalty, length, config.alpha)
