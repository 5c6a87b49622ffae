"""Table of corpus metrics for translations, and scores by several metrics at once."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray
from sacrebleu.metrics import CHRF, TER

from glassformer.errors import ConfigError, nearest
from glassformer.metrics.accuracy import check_parallel
from glassformer.metrics.error_rates import CHARACTERS, WORDS, ExactMatch
from glassformer.metrics.translation import SacreMetric, Score, bleu_metric


class CorpusMetric(Protocol):
    """A score computed from sums over sentences, so that sentences can be counted once and resampled."""

    def counts(self, hypotheses: Sequence[str], references: Sequence[str]) -> NDArray[Any]:
        """A row of numbers for each sentence."""
        ...

    def score(self, counts: NDArray[Any]) -> float:
        """The score of a sum of rows."""
        ...

    def signature(self, **further: Any) -> str:
        """Settings that determine the score, including ``further``: ``name:value`` separated by ``|``."""
        ...


_TABLE: dict[str, Callable[[str, bool], CorpusMetric]] = {
    "bleu": lambda tokenize, lowercase: SacreMetric(bleu_metric(tokenize, lowercase)),
    "chrf": lambda tokenize, lowercase: SacreMetric(CHRF()),
    "ter": lambda tokenize, lowercase: SacreMetric(TER()),
    "wer": lambda tokenize, lowercase: WORDS,
    "cer": lambda tokenize, lowercase: CHARACTERS,
    "exact": lambda tokenize, lowercase: ExactMatch(),
}
METRICS = tuple(_TABLE)


def corpus_metrics(names: Sequence[str], tokenize: str = "13a", lowercase: bool = False) -> dict[str, CorpusMetric]:
    """The metrics called ``names``, in order; ``tokenize`` and ``lowercase`` apply to BLEU."""
    if unknown := [name for name in names if name not in _TABLE]:
        raise ConfigError(f"{unknown[0]!r} is not a metric; {nearest(unknown[0], list(METRICS))}")
    return {name: _TABLE[name](tokenize, lowercase) for name in names}


def corpus_scores(
    metrics: dict[str, CorpusMetric], hypotheses: Sequence[str], references: Sequence[str]
) -> dict[str, Score]:
    """The score of each metric over all sentences."""
    check_parallel(hypotheses, references, ("hypotheses", "references"))
    return {
        name: Score(metric.score(metric.counts(hypotheses, references).sum(0)), metric.signature())
        for name, metric in metrics.items()
    }
