"""BLEU, chrF and TER by sacreBLEU, each with the signature that makes its number comparable (Post 2018)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, CHRF, TER

from glassformer.config import ConfigError
from glassformer.evaluate.accuracy import check_parallel

TOKENIZERS = ("13a", "char", "intl", "none", "zh", "ja-mecab", "ko-mecab")
"""Those of sacreBLEU that need no download; the last two need a package (``EXTRAS``)."""
EXTRAS = {"ja-mecab": "ja", "ko-mecab": "ko"}
"""The extra of sacreBLEU that a tokenizer needs."""


class Score(NamedTuple):
    """A corpus score, and what its number depends on besides the texts.

    BLEU, chrF and exact match go from 0 to 100. Error rates start at 0, the best, and may exceed 100.
    """

    score: float
    signature: str


def bleu_metric(tokenize: str = "13a", lowercase: bool = False) -> BLEU:
    """sacreBLEU's BLEU; a ``ConfigError`` names the package that a tokenizer needs and is not installed."""
    if tokenize not in TOKENIZERS:
        raise ConfigError(f"tokenize={tokenize!r} is not known; choose from {', '.join(TOKENIZERS)}")
    try:
        # force: no warning on text that looks tokenized
        return BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    except (RuntimeError, ImportError):
        if tokenize not in EXTRAS:
            raise
        raise ConfigError(
            f"tokenize={tokenize!r} needs MeCab and a dictionary, which are not installed; "
            f"pip install 'sacrebleu[{EXTRAS[tokenize]}]', or choose from {', '.join(TOKENIZERS[:5])}"
        ) from None


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a", lowercase: bool = False) -> Score:
    """Corpus BLEU-4 (Papineni et al. 2002) against one reference a sentence, on detokenized text."""
    return _score(bleu_metric(tokenize, lowercase), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Corpus chrF2 (Popović 2015): F-score of character 1- to 6-grams, recall weighing twice as much."""
    return _score(CHRF(), hypotheses, references)


def ter(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Translation edit rate (Snover et al. 2006): edits and shifts of words in percent of the reference's words.

    As sacreBLEU computes it by default: case is ignored, punctuation is counted.
    """
    return _score(TER(), hypotheses, references)


class SacreMetric:
    """A metric of sacreBLEU as counts in a sentence, for resampling (``CorpusMetric``)."""

    def __init__(self, metric: Any) -> None:
        self.metric = metric

    def counts(self, hypotheses: Sequence[str], references: Sequence[str]) -> NDArray[Any]:
        return np.array(self.metric._extract_corpus_statistics(list(hypotheses), [list(references)]))

    def score(self, counts: NDArray[Any]) -> float:
        return float(self.metric._compute_score_from_stats(counts.tolist()).score)

    def signature(self, **further: Any) -> str:
        signature = self.metric.get_signature()
        for name, value in further.items():
            signature.update(name, value)
        return str(signature.format())


def _score(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    check_parallel(hypotheses, references, ("hypotheses", "references"))
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score(float(score), metric.get_signature().format())
