"""Translations of texts that were decoded in pieces: the search with an estimate of its time, and the n-best list."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from glassformer.generate.config import DecodingConfig, Hypothesis, length_penalty
from glassformer.text.sentences import join_texts

WARM_UP, SAMPLE, MANY = 4, 16, 128
"""Pieces decoded as warm-up, pieces that are timed, and the minimum number of pieces for an estimate."""
LONG_SECONDS = 5.0
"""Minimum estimate that is announced."""
Search = Callable[[Sequence[int]], list[list[Hypothesis]]]
"""Hypotheses of the pieces with these indices."""


@dataclass(frozen=True)
class Translation:
    """One hypothesis as text; ``hypothesis`` holds its tokens and scores."""

    text: str
    hypothesis: Hypothesis
    source: str = field(default="", repr=False)
    pieces: tuple["Translation", ...] = field(default=(), repr=False)
    """Translations of the pieces of a source that was split; ``text`` joins them.

    ``hypothesis`` concatenates their tokens, each piece with its end token."""
    copied: Mapping[int, str] = field(default_factory=dict, repr=False)
    """With ``unknown="copy"``: from the index of each ``<unk>`` in the hypothesis to the text that replaces it."""

    @property
    def score(self) -> float:
        return self.hypothesis.score


def search_with_estimate(
    search: Search, lengths: Sequence[int], announce: Callable[[float], None]
) -> list[list[Hypothesis]]:
    """Search a sample of the pieces, then the others; call ``announce`` with the expected seconds if there are many.

    ``lengths`` are the tokens of each piece; its time is assumed to be proportional. The sample is spread over the
    text. Its hypotheses are used, so the estimate costs next to nothing.
    """
    sample = list(range(0, len(lengths), len(lengths) // (WARM_UP + SAMPLE)))[: WARM_UP + SAMPLE]
    others = sorted(set(range(len(lengths))).difference(sample))
    hypotheses = dict(zip(sample[:WARM_UP], search(sample[:WARM_UP]), strict=True))
    began = time.perf_counter()
    hypotheses |= zip(sample[WARM_UP:], search(sample[WARM_UP:]), strict=True)
    seconds = (time.perf_counter() - began) / sum(lengths[index] for index in sample[WARM_UP:])
    expected = seconds * sum(lengths[index] for index in others)
    if expected >= LONG_SECONDS:
        announce(expected)
    hypotheses |= zip(others, search(others), strict=True)
    return [hypotheses[index] for index in range(len(lengths))]


def joined(pieces: Sequence[Sequence[Translation]], end: int, config: DecodingConfig) -> list[Translation]:
    """Join the translations of the pieces of a text into translations of the text, best first."""
    translations = []
    for ranks in best_choices([[one.hypothesis for one in several] for several in pieces], config):
        chosen = tuple(several[rank] for several, rank in zip(pieces, ranks, strict=True))
        sources = [one.source for one in chosen]
        text = join_texts([one.text for one in chosen], sources)
        hypothesis = united([one.hypothesis for one in chosen], end, config)
        before = [0, *accumulate(len(one.hypothesis.token_log_probs) for one in chosen)]
        copied = {start + place: text for start, one in zip(before, chosen) for place, text in one.copied.items()}
        translations.append(Translation(text, hypothesis, "".join(sources), chosen, copied))
    return translations


def best_choices(pieces: Sequence[Sequence[Hypothesis]], config: DecodingConfig) -> list[list[int]]:
    """The ``n_best`` combinations of hypotheses, best first: the index of a hypothesis for each piece.

    Pieces are independent, so their log-probabilities add up; a truncated hypothesis counts as if it ended there.
    Samples have no order: the first combination is the first sample of each piece, the second is the second.
    """
    if config.sample:
        return [[rank] * len(pieces) for rank in range(config.n_best)]
    chosen: list[tuple[float, int, list[int]]] = [(0.0, 0, [])]
    for hypotheses in pieces:
        longer = [
            (total + one.log_prob + one.end_log_prob, length + _complete_length(one), [*ranks, rank])
            for total, length, ranks in chosen
            for rank, one in enumerate(hypotheses)
        ]
        longer.sort(key=lambda one: -_score(one[0], one[1], config))
        chosen = longer[: config.n_best]
    return [ranks for _, _, ranks in chosen]


def _complete_length(hypothesis: Hypothesis) -> int:
    """Number of tokens with the end token, even if it was not chosen."""
    return len(hypothesis.token_log_probs) + (hypothesis.finish_reason != "end")


def united(pieces: Sequence[Hypothesis], end: int, config: DecodingConfig) -> Hypothesis:
    """Concatenate the tokens of ``pieces``, with the end tokens predicted between them, and score them as one text."""
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
