"""Corpus metrics for translations: their table, scores of one system, and the significance of a difference of two.

Paired bootstrap resampling (Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation"), with the
test statistic and random numbers of ``sacrebleu --paired-bs``. sacreBLEU's own class takes its seed from the
environment only, and calls a system significantly different from itself (p = 1/1001), where this says p = 1.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import CHRF, TER

from glassformer.errors import ConfigError, nearest
from glassformer.metrics.class_report import check_parallel
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


class Comparison(NamedTuple):
    """Two systems on the same sentences by one metric."""

    first: float
    second: float
    p_value: float  # small: a difference this large is unlikely to come from the choice of sentences
    interval: tuple[float, float]  # 95 % of the resampled differences, second - first
    signature: str

    @property
    def difference(self) -> float:
        return self.second - self.first


def paired_bootstrap(
    references: Sequence[str],
    first: Sequence[str],
    second: Sequence[str],
    samples: int = 1000,
    seed: int = 12345,
    tokenize: str = "13a",
    lowercase: bool = False,
    metrics: Sequence[str] | Mapping[str, CorpusMetric] = ("bleu", "chrf"),
) -> dict[str, Comparison]:
    """Compare two systems by each of ``metrics`` on ``samples`` resamplings of the sentences.

    ``metrics`` are names (``METRICS``), or a mapping of names to metrics; ``tokenize`` and ``lowercase`` apply to BLEU.
    """
    check_parallel(first, references, ("hypotheses of the first system", "references"))
    check_parallel(second, references, ("hypotheses of the second system", "references"))
    if samples < 1:
        raise ConfigError(f"samples={samples}: the p-value is a share of the samples; give at least 1, better 1000")
    if seed < 0:
        raise ConfigError(f"seed={seed} is negative; give 0 or more")
    table = metrics if isinstance(metrics, Mapping) else corpus_metrics(metrics, tokenize, lowercase)
    return {name: _compare(metric, (first, second), references, samples, seed) for name, metric in table.items()}


def _compare(
    metric: CorpusMetric,
    systems: tuple[Sequence[str], Sequence[str]],
    references: Sequence[str],
    samples: int,
    seed: int,
) -> Comparison:
    # Every metric is a function of counts summed over sentences: count once, then sum each resampling.
    counts = [metric.counts(system, references) for system in systems]
    first, second = (metric.score(sentences.sum(0)) for sentences in counts)
    generator = np.random.default_rng(seed)
    differences = np.empty(samples)
    for sample in range(samples):
        drawn = generator.choice(len(references), size=len(references), replace=True)
        differences[sample] = metric.score(counts[1][drawn].sum(0)) - metric.score(counts[0][drawn].sum(0))
    low, high = np.percentile(differences, (2.5, 97.5))
    p_value = _p_value(differences, second - first)
    return Comparison(first, second, p_value, (float(low), float(high)), metric.signature(seed=str(seed), bs=samples))


def _p_value(differences: np.ndarray, observed: float) -> float:
    """Share of resamples that move the difference by as much as was observed, with add-one smoothing."""
    sizes = np.abs(differences)
    extreme = int((sizes - sizes.mean() >= abs(observed)).sum())
    return (extreme + 1) / (len(differences) + 1)
