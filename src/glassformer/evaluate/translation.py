"""BLEU and chrF by sacreBLEU, each with the signature that makes its number comparable (Post 2018)."""

from collections.abc import Sequence
from typing import NamedTuple

from sacrebleu.metrics import BLEU, CHRF

from glassformer.config import ConfigError
from glassformer.evaluate.accuracy import check_parallel

# sacreBLEU's other tokenizers need a download or a further package.
TOKENIZERS = ("13a", "char", "intl", "none", "zh")


class Score(NamedTuple):
    """A corpus score from 0 to 100, and sacreBLEU's full signature."""

    score: float
    signature: str


def bleu_metric(tokenize: str = "13a", lowercase: bool = False) -> BLEU:
    if tokenize not in TOKENIZERS:
        raise ConfigError(f"tokenize={tokenize!r} is not known; choose from {', '.join(TOKENIZERS)}")
    return BLEU(tokenize=tokenize, lowercase=lowercase, force=True)  # force: no warning on text that looks tokenized


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a", lowercase: bool = False) -> Score:
    """Corpus BLEU-4 (Papineni et al. 2002) against one reference a sentence, on detokenized text."""
    return _score(bleu_metric(tokenize, lowercase), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Corpus chrF2 (Popović 2015): F-score of character 1- to 6-grams, recall weighing twice as much."""
    return _score(CHRF(), hypotheses, references)


def _score(metric: BLEU | CHRF, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    check_parallel(hypotheses, references, ("hypotheses", "references"))
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score(float(score), metric.get_signature().format())
