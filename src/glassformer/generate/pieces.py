"""Translations, also of a text that was decoded in pieces: which of each piece belong together, and their union."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from glassformer.generate.config import DecodingConfig, Hypothesis, length_penalty
from glassformer.text.sentences import join_texts


@dataclass(frozen=True)
class Translation:
    """One hypothesis as text; ``hypothesis`` holds its tokens and scores."""

    text: str
    hypothesis: Hypothesis
    source: str = field(default="", repr=False)
    pieces: tuple["Translation", ...] = field(default=(), repr=False)
    """Of a source that was too long to be read at once: the translations of its parts, joined in ``text``.

    In ``hypothesis`` their tokens follow each other, each piece with its end token."""
    copied: Mapping[int, str] = field(default_factory=dict, repr=False)
    """With ``unknown="copy"``: for the place of each ``<unk>`` in the hypothesis, the text that replaces it."""

    @property
    def score(self) -> float:
        return self.hypothesis.score


def joined(pieces: Sequence[Sequence[Translation]], end: int, config: DecodingConfig) -> list[Translation]:
    """The translations of a whole text, best first, from those of each of its pieces; ``end`` is the end token."""
    wholes = []
    for ranks in best_choices([[one.hypothesis for one in several] for several in pieces], config):
        chosen = tuple(several[rank] for several, rank in zip(pieces, ranks, strict=True))
        sources = [one.source for one in chosen]
        text = join_texts([one.text for one in chosen], sources)
        hypothesis = united([one.hypothesis for one in chosen], end, config)
        before = [0, *accumulate(len(one.hypothesis.token_log_probs) for one in chosen)]
        copied = {start + place: text for start, one in zip(before, chosen) for place, text in one.copied.items()}
        wholes.append(Translation(text, hypothesis, "".join(sources), chosen, copied))
    return wholes


def best_choices(pieces: Sequence[Sequence[Hypothesis]], config: DecodingConfig) -> list[list[int]]:
    """For each of the ``n_best`` hypotheses of the whole, best first, which hypothesis of each piece it consists of.

    Pieces are independent, so that their log-probabilities add up; one that was cut counts as if it ended there.
    Drawn hypotheses have no order: the first whole consists of the first of each piece, the second of the second.
    """
    if config.sample:
        return [[rank] * len(pieces) for rank in range(config.n_best)]
    chosen: list[tuple[float, int, list[int]]] = [(0.0, 0, [])]
    for found in pieces:
        longer = [
            (total + one.log_prob + one.end_log_prob, length + _complete_length(one), [*ranks, rank])
            for total, length, ranks in chosen
            for rank, one in enumerate(found)
        ]
        longer.sort(key=lambda one: -_score(one[0], one[1], config))
        chosen = longer[: config.n_best]
    return [ranks for _, _, ranks in chosen]


def _complete_length(hypothesis: Hypothesis) -> int:
    """Tokens with the end token, also where it was not chosen."""
    return len(hypothesis.token_log_probs) + (hypothesis.finish_reason != "end")


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
